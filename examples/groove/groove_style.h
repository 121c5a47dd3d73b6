// Style similarity of two grooves: the cosine similarity of their profiles, which are histograms of
// the notes of a track (Cífka et al. 2020, "Groove2Groove", §V; Liutkus et al. 2021, Fig. 5).
#pragma once

#include <array>
#include <vector>

#include "examples/groove/groove.h"

namespace stretto::examples {

using Profile = std::vector<double>;

/// [41, 24]: pairs of different notes that begin less than four beats apart, by the interval from
/// the earlier to the later, −20 … 20 semitones (others are not counted), and by the time between
/// them in sixths of a beat. Notes that begin together are counted in both orders.
Profile time_pitch_profile(const std::vector<music::Note>& notes);

/// Unit of onsets within the bar. The published code compared ticks, twelfths of a beat, with bin
/// edges in beats, so that it counted only the first five ticks of a bar.
enum class OnsetUnit { beats, published_ticks };

/// [12, 24]: notes by duration and onset within the bar, both in sixths of a beat. Notes longer
/// than two beats are not counted; notes of two beats are in the last row.
Profile onset_duration_profile(const std::vector<music::Note>& notes,
                               OnsetUnit unit = OnsetUnit::beats);

/// [128, 24]: drums by pitch and onset within the bar.
Profile onset_drum_profile(const std::vector<music::Note>& notes,
                           OnsetUnit unit = OnsetUnit::beats);

/// Returns 0 if a profile is zero everywhere. Throws std::invalid_argument for profiles
/// of different sizes.
double cosine_similarity(const Profile& a, const Profile& b);

inline constexpr size_t style_chunks = 4;

/// Similarity by quarter of the output and by track; NaN for tracks whose reference has no counts.
struct StyleSimilarity {
  /// Onset-duration profiles; for drums onset-drum profiles.
  std::array<std::array<double, 3>, style_chunks> onset;
  std::array<std::array<double, 3>, style_chunks> time_pitch;  ///< NaN for the drums

  /// Mean over the tracks that are not NaN; NaN if all are.
  double mean_onset(size_t chunk) const;
  double mean_time_pitch(size_t chunk) const;
};

/// Each output is divided into four chunks of ⌊its end / 4⌋ ticks; a chunk contains the notes that
/// begin in it, both borders included. The profiles of a chunk, summed over all outputs, are
/// compared with those of the whole reference.
StyleSimilarity style_similarity(const music::Song& reference,
                                 const std::vector<music::Song>& outputs,
                                 OnsetUnit unit = OnsetUnit::beats);

/// Returns the elementwise means over the values that are not NaN; NaN if all are.
StyleSimilarity mean_similarity(const std::vector<StyleSimilarity>& all);

}  // namespace stretto::examples
