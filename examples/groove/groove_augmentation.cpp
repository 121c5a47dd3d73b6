#include "examples/groove/groove_augmentation.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace stretto::examples {

Groove choose_harmony(const GrooveSource& song, PortableRandom& random) {
  std::vector<size_t> with_notes;
  for (size_t i = 0; i < song.harmony.size(); ++i)
    if (!song.harmony[i].notes.empty()) with_notes.push_back(i);
  if (with_notes.empty()) return with_harmony(song, 0);
  const int chosen = random.below(int(with_notes.size()));
  return with_harmony(song, with_notes[size_t(chosen)]);
}

Groove skip_bars(const Groove& groove, PortableRandom& random) {
  const int bars = bars_of(groove);
  if (bars < 8 || !random.percent(25)) return groove;
  return without_bars(groove, 4 * (1 + random.below(std::min(64, bars / 2) / 4)));
}

Groove drop_tracks(const Groove& groove, PortableRandom& random) {
  std::vector<size_t> playing;
  for (size_t i = 0; i < 3; ++i)
    if (!groove.tracks[i].empty()) playing.push_back(i);
  if (playing.empty()) return groove;
  const int kept = random.below(int(playing.size()));
  Groove fewer = groove;
  for (int i = 0; i < int(playing.size()); ++i)
    if (i != kept && random.percent(10)) fewer.tracks[playing[size_t(i)]].clear();
  return fewer;
}

Groove transpose(const Groove& groove, PortableRandom& random) {
  return transposed(groove, random.below(12) - 5);
}

Groove transposed(const Groove& groove, int semitones) {
  if (semitones < -12 || semitones > 12)
    throw std::invalid_argument("cannot transpose by " + std::to_string(semitones) +
                                " semitones; expected -12 to 12");
  Groove moved = groove;
  for (const size_t track : {bass_track, harmony_track})
    for (music::Note& note : moved.tracks[track]) {
      note.pitch += semitones;
      if (note.pitch < 0) note.pitch += 12;
      if (note.pitch > 127) note.pitch -= 12;
    }
  return moved;
}

Groove augmented(const GrooveSource& song, PortableRandom& random) {
  const Groove trio = choose_harmony(song, random);
  const Groove later = skip_bars(trio, random);
  return transpose(drop_tracks(later, random), random);
}

}  // namespace stretto::examples
