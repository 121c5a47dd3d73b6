// Small songs for the tests of examples/piano.
#pragma once

#include <string>
#include <vector>

#include "music/midi_reader.h"
#include "music/midi_writer.h"

namespace stretto::music::testing {

inline Song piano_song(std::vector<Note> notes) {
  return {480, 120, {{"Piano", 0, 0, std::move(notes)}}, {}};
}

inline MidiFile parsed(const Song& song) { return parse_midi(midi_bytes(song), "song.mid"); }

}  // namespace stretto::music::testing
