// Small songs for the tests of examples/piano.
#pragma once

#include <string>
#include <vector>

#include "examples/midi/midi.h"
#include "examples/midi/midi_reader.h"

namespace stretto::examples::testing {

inline Song piano_song(std::vector<Note> notes) {
  return {480, 120, {{"Piano", 0, 0, std::move(notes)}}, {}};
}

inline MidiFile parsed(const Song& song) { return parse_midi(midi_bytes(song), "song.mid"); }

}  // namespace stretto::examples::testing
