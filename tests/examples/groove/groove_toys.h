// Small grooves for tests.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "examples/common/portable_random.h"
#include "examples/groove/groove.h"

namespace stretto::examples::testing {

inline bool same_note(const stretto::music::Note& a, const stretto::music::Note& b) {
  return std::tie(a.start, a.duration, a.pitch) == std::tie(b.start, b.duration, b.pitch);
}

/// True if the notes are equal except for velocities, in any order.
inline bool same_notes(std::vector<stretto::music::Note> a, std::vector<stretto::music::Note> b) {
  for (std::vector<stretto::music::Note>* notes : {&a, &b})
    std::sort(notes->begin(), notes->end(),
              [](const stretto::music::Note& x, const stretto::music::Note& y) {
                return std::tie(x.start, x.duration, x.pitch) <
                       std::tie(y.start, y.duration, y.pitch);
              });
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_note);
}

inline bool same_notes(const stretto::music::Song& a, const stretto::music::Song& b) {
  for (std::size_t i = 0; i < 3; ++i)
    if (!same_notes(a.tracks[i].notes, b.tracks[i].notes)) return false;
  return true;
}

/// Random notes in all tracks. Notes of one pitch do not overlap, so that tokens
/// preserve their durations.
inline stretto::music::Song random_groove(PortableRandom& random, int beats) {
  stretto::music::Song groove = empty_groove();
  for (stretto::music::Track& track : groove.tracks)
    for (const int pitch : {36 + random.below(4), 60 + random.below(4), 127})
      for (int time = random.below(14); time < 12 * beats;) {
        const int duration = 1 + random.below(40);
        track.notes.push_back({time, duration, pitch, 80});
        time += duration + random.below(20);
      }
  groove.tracks[0].notes.push_back({7, 1, 99, 80});  // always one note off the beat
  return groove;
}

}  // namespace stretto::examples::testing
