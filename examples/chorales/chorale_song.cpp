#include "examples/chorales/chorale_song.h"

#include <array>
#include <utility>

namespace stretto::examples {

constexpr int choir_aahs = 52;  // General MIDI

Song to_song(const Chorale& chorale) {
  constexpr std::array<const char*, 4> names = {"Soprano", "Alto", "Tenor", "Bass"};
  constexpr int velocity = 80;
  Song song;
  const int ticks_per_step = song.ticks_per_quarter / 4;
  for (size_t voice = 0; voice < 4; ++voice) {
    Track track{names[voice], int(voice), choir_aahs, {}};
    int previous = -1;
    for (size_t step = 0; step < chorale.steps.size(); ++step) {
      const int pitch = chorale.steps[step][voice];
      if (pitch >= 0 && pitch == previous) {
        track.notes.back().duration += ticks_per_step;
      } else if (pitch >= 0) {
        const int start = int(step) * ticks_per_step;
        track.notes.push_back({start, ticks_per_step, pitch, velocity});
      }
      previous = pitch;
    }
    song.tracks.push_back(std::move(track));
  }
  return song;
}

}  // namespace stretto::examples
