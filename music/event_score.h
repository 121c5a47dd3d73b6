// The music of a MIDI file as EventTokenizer's tokens describe it: rounded to the grid, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "event_vocabulary.h"

namespace stretto::music {

/// A note, tempo, meter, pedal or pitch bend.
struct ScoreEvent {
  int64_t step;          // of the grid
  EventKind kind;        // pitch, drum, tempo, meter, pedal, pedal_off, bend
  int value;             // as EventWord::value
  int program = 0;       // of a note or bend
  int velocity = 0;      // of a note
  int64_t duration = 0;  // of a note or pedal, in eighths of a beat
};

/// The events of a file, in the order of their tokens.
struct EventScore {
  int64_t per_quarter;  // steps per quarter note
  std::vector<ScoreEvent> events;
};

/// Returns the events of a file that Tokenizer::check_file() accepts.
EventScore event_score(const MidiFile& file, const EventTokenizerOptions& options);

}  // namespace stretto::music
