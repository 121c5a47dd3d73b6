#include "examples/groove/groove_augmentation.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace stretto::examples {

music::Song choose_harmony(const music::Song& song, PortableRandom& random) {
  std::vector<size_t> with_notes;
  for (size_t i = harmony_track; i < song.tracks.size(); ++i)
    if (!song.tracks[i].notes.empty()) with_notes.push_back(i - harmony_track);
  if (with_notes.empty()) return with_harmony(song, 0);
  const int chosen = random.below(int(with_notes.size()));
  return with_harmony(song, with_notes[size_t(chosen)]);
}

music::Song skip_bars(const music::Song& groove, PortableRandom& random) {
  const int bars = bars_of(groove);
  if (bars < 8 || !random.percent(25)) return groove;
  return without_bars(groove, 4 * (1 + random.below(std::min(64, bars / 2) / 4)));
}

music::Song drop_tracks(const music::Song& groove, PortableRandom& random) {
  std::vector<size_t> playing;
  for (size_t i = 0; i < 3; ++i)
    if (!groove.tracks[i].notes.empty()) playing.push_back(i);
  if (playing.empty()) return groove;
  const int kept = random.below(int(playing.size()));
  music::Song fewer = groove;
  for (int i = 0; i < int(playing.size()); ++i)
    if (i != kept && random.percent(10)) fewer.tracks[playing[size_t(i)]].notes.clear();
  return fewer;
}

music::Song transpose(const music::Song& groove, PortableRandom& random) {
  return transposed(groove, random.below(12) - 5);
}

music::Song transposed(const music::Song& groove, int semitones) {
  if (semitones < -12 || semitones > 12)
    throw std::invalid_argument("cannot transpose by " + std::to_string(semitones) +
                                " semitones; expected -12 to 12");
  music::Song moved = groove;
  for (const size_t track : {bass_track, harmony_track})
    for (music::Note& note : moved.tracks[track].notes) {
      note.pitch += semitones;
      if (note.pitch < 0) note.pitch += 12;
      if (note.pitch > 127) note.pitch -= 12;
    }
  return moved;
}

music::Song augmented(const music::Song& song, PortableRandom& random) {
  const music::Song trio = choose_harmony(song, random);
  const music::Song later = skip_bars(trio, random);
  return transpose(drop_tracks(later, random), random);
}

}  // namespace stretto::examples
