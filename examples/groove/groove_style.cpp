#include "examples/groove/groove_style.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace stretto::examples {
namespace {

constexpr int bins = 24, ticks_per_bin = groove_bar / bins;  // a bar in sixths of a beat
constexpr int widest = 20;                                   // largest interval in semitones
constexpr int longest = 2 * groove_beat;                     // largest duration in ticks
constexpr int durations = longest / ticks_per_bin;
constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

void count(Profile& profile, int row, int column) { profile[size_t(row * bins + column)] += 1; }

/// Returns the column of an onset; −1 if it is not counted.
int onset_bin(const music::Note& note, OnsetUnit unit) {
  const int tick = note.start % groove_bar;
  if (unit == OnsetUnit::beats) return tick / ticks_per_bin;
  return tick > 4 ? -1 : std::min(6 * tick, bins - 1);
}

Profile onset_profile(size_t track, const std::vector<music::Note>& notes, OnsetUnit unit) {
  return track == drum_track ? onset_drum_profile(notes, unit)
                             : onset_duration_profile(notes, unit);
}

std::vector<music::Note> stretch(const std::vector<music::Note>& notes, int first, int last) {
  std::vector<music::Note> inside;
  for (const music::Note& note : notes)
    if (note.start >= first && note.start <= last) inside.push_back(note);
  return inside;
}

bool is_zero(const Profile& profile) {
  return std::all_of(profile.begin(), profile.end(), [](double x) { return x == 0; });
}

/// Compares the sum of profile(notes) over a chunk of all outputs with the
/// profile of the reference.
template <class ProfileOf>
double likeness(size_t track, size_t chunk, const music::Song& reference,
                const std::vector<music::Song>& outputs, const ProfileOf& profile) {
  const Profile expected = profile(reference.tracks[track].notes);
  if (is_zero(expected)) return no_value;
  Profile sum(expected.size());
  for (const music::Song& output : outputs) {
    const int length = end_of(output) / int(style_chunks);
    const int first = int(chunk) * length;
    const Profile part = profile(stretch(output.tracks[track].notes, first, first + length));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return cosine_similarity(expected, sum);
}

template <class Values>
double mean(const Values& values) {
  double sum = 0, n = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    n += 1;
  }
  return n > 0 ? sum / n : no_value;
}

}  // namespace

Profile time_pitch_profile(const std::vector<music::Note>& notes) {
  Profile profile(size_t((2 * widest + 1) * bins));
  std::vector<music::Note> sorted = notes;
  std::sort(sorted.begin(), sorted.end(),
            [](const music::Note& a, const music::Note& b) { return a.start < b.start; });
  const auto add = [&](const music::Note& from, const music::Note& to) {
    const int interval = to.pitch - from.pitch;
    if (std::abs(interval) <= widest)
      count(profile, interval + widest, (to.start - from.start) / ticks_per_bin);
  };
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1; j < sorted.size() && sorted[j].start - sorted[i].start < 4 * groove_beat;
         ++j) {
      add(sorted[i], sorted[j]);
      if (sorted[j].start == sorted[i].start) add(sorted[j], sorted[i]);
    }
  }
  return profile;
}

Profile onset_duration_profile(const std::vector<music::Note>& notes, OnsetUnit unit) {
  Profile profile(size_t(durations * bins));
  for (const music::Note& note : notes) {
    const int onset = onset_bin(note, unit);
    if (onset < 0 || note.duration > longest) continue;
    count(profile, std::min(note.duration / ticks_per_bin, durations - 1), onset);
  }
  return profile;
}

Profile onset_drum_profile(const std::vector<music::Note>& notes, OnsetUnit unit) {
  Profile profile(size_t(128 * bins));
  for (const music::Note& note : notes) {
    const int onset = onset_bin(note, unit);
    if (onset >= 0) count(profile, note.pitch, onset);
  }
  return profile;
}

double cosine_similarity(const Profile& a, const Profile& b) {
  if (a.size() != b.size())
    throw std::invalid_argument("cosine_similarity: profiles of " + std::to_string(a.size()) +
                                " and " + std::to_string(b.size()) + " elements");
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

double StyleSimilarity::mean_onset(size_t chunk) const { return mean(onset.at(chunk)); }
double StyleSimilarity::mean_time_pitch(size_t chunk) const { return mean(time_pitch.at(chunk)); }

StyleSimilarity style_similarity(const music::Song& reference,
                                 const std::vector<music::Song>& outputs, OnsetUnit unit) {
  StyleSimilarity result{};
  for (size_t chunk = 0; chunk < style_chunks; ++chunk)
    for (size_t track = 0; track < 3; ++track) {
      result.onset[chunk][track] = likeness(
          track, chunk, reference, outputs,
          [&](const std::vector<music::Note>& notes) { return onset_profile(track, notes, unit); });
      result.time_pitch[chunk][track] =
          track == drum_track ? no_value
                              : likeness(track, chunk, reference, outputs, time_pitch_profile);
    }
  return result;
}

StyleSimilarity mean_similarity(const std::vector<StyleSimilarity>& all) {
  StyleSimilarity result{};
  for (size_t chunk = 0; chunk < style_chunks; ++chunk)
    for (size_t track = 0; track < 3; ++track) {
      std::vector<double> onset, time_pitch;
      for (const StyleSimilarity& one : all) {
        onset.push_back(one.onset[chunk][track]);
        time_pitch.push_back(one.time_pitch[chunk][track]);
      }
      result.onset[chunk][track] = mean(onset);
      result.time_pitch[chunk][track] = mean(time_pitch);
    }
  return result;
}

}  // namespace stretto::examples
