// generated_library(): chorales as a pianist would play them.
#include <algorithm>

#include "examples/chorales/chorale_song.h"
#include "examples/common/portable_random.h"
#include "examples/piano/library.h"
#include "music/midi_reader.h"

namespace stretto::examples {
namespace {

// Returns the velocity of a note: higher on the beat and in the soprano.
int velocity(int64_t sixteenth, size_t voice) {
  const int beat = sixteenth % 16 == 0 ? 12 : sixteenth % 4 == 0 ? 6 : 0;
  return 56 + beat + (voice == 0 ? 10 : 0);
}

// Arranges a chorale for the piano. The inner voices and the bass become broken chords: one note
// after the other, a sixteenth or two apart.
music::Song for_piano(const Chorale& chorale, PortableRandom& random) {
  music::Song song = to_song(chorale);
  song.quarters_per_minute = 32 + 3 * (11 + random.below(22));
  const int step = song.ticks_per_quarter / 4;
  const bool broken = random.percent(50);
  for (size_t voice = 0; voice < song.tracks.size(); ++voice) {
    music::Track& track = song.tracks[voice];
    track.program = track.channel = 0;
    for (music::Note& note : track.notes) {
      const int steps = note.duration / step;
      const int late = broken && voice > 0 && steps >= 4 ? int(voice - 1) * step : 0;
      note.start += late;
      note.duration -= late;
      note.velocity = velocity(note.start / step, voice);
    }
  }
  return song;
}

}  // namespace

PianoLibrary generated_library(uint64_t seed, const music::Tokenizer& tokens) {
  const ChoraleSet set = generate_chorales(seed);
  const auto all = [&](const std::vector<Chorale>& chorales, const std::string& name,
                       uint64_t stream) {
    std::vector<PianoPiece> pieces;
    for (size_t i = 0; i < chorales.size(); ++i) {
      PortableRandom random(seed ^ (stream << 32 | i));
      const music::MidiFile file =
          music::parse_midi(music::midi_bytes(for_piano(chorales[i], random)), name);
      pieces.push_back({name + std::to_string(i), tokens.encode(file)});
    }
    return pieces;
  };
  PianoLibrary library;
  library.train = all(set.train, "train ", 1);
  library.valid = all(set.valid, "valid ", 2);
  library.test = all(set.test, "test ", 3);
  return library;
}

}  // namespace stretto::examples
