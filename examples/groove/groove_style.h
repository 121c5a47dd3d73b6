// How alike two grooves are in style: profiles, which are histograms of what the notes of a track
// do, and the cosine between them (Cífka et al. 2020, "Groove2Groove", §V; Liutkus et al. 2021,
// Fig. 5).
#pragma once

#include <array>
#include <vector>

#include "examples/groove/groove.h"

namespace stretto::examples {

using Profile = std::vector<double>;

/// [41, 24]: pairs of different notes that begin less than four beats apart, by the interval from
/// the earlier to the later, −20 … 20 semitones (others do not count), and by the time between them
/// in sixths of a beat. Notes that begin together count in both orders.
Profile time_pitch_profile(const std::vector<Note>& notes);

/// Onsets within the bar are in beats. The published code took them in ticks, of twelfths of a
/// beat, against edges in beats, so that it counted the first five ticks of a bar alone.
enum class OnsetUnit { beats, published_ticks };

/// [12, 24]: notes by duration and onset within the bar, both in sixths of a beat. Notes of more
/// than two beats do not count; those of two are in the last row.
Profile onset_duration_profile(const std::vector<Note>& notes, OnsetUnit unit = OnsetUnit::beats);

/// [128, 24]: drums by pitch and onset within the bar.
Profile onset_drum_profile(const std::vector<Note>& notes, OnsetUnit unit = OnsetUnit::beats);

/// 0 where one of them is zero everywhere. Throws std::invalid_argument for profiles of different
/// sizes.
double cosine_similarity(const Profile& a, const Profile& b);

inline constexpr size_t style_chunks = 4;

/// By quarter of the output and track; NaN for tracks in which the reference has nothing to count.
struct StyleSimilarity {
  std::array<std::array<double, 3>, style_chunks> onset;       // onset-duration, drums: onset-drum
  std::array<std::array<double, 3>, style_chunks> time_pitch;  // NaN for the drums

  /// Means over the tracks that are not NaN; NaN where all are.
  double mean_onset(size_t chunk) const;
  double mean_time_pitch(size_t chunk) const;
};

/// Each output is cut into four stretches of ⌊its end / 4⌋ ticks, into which fall the notes that
/// begin in them, both ends included; the profiles of a stretch of all outputs are added and
/// compared with those of the whole reference.
StyleSimilarity style_similarity(const Groove& reference, const std::vector<Groove>& outputs,
                                 OnsetUnit unit = OnsetUnit::beats);

/// The means of several, number by number, over those that are not NaN; NaN where all are.
StyleSimilarity mean_similarity(const std::vector<StyleSimilarity>& all);

}  // namespace stretto::examples
