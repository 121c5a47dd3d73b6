// --tokens: the languages that a model of piano music may speak, under one face.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/midi/midi.h"
#include "examples/midi/midi_reader.h"

namespace stretto::examples {

/// What may not follow: fed with the tokens of a piece, says which tokens are forbidden next.
class PianoGrammar {
 public:
  virtual ~PianoGrammar() = default;
  virtual void see(int token) = 0;
  virtual std::vector<int64_t> forbidden() const = 0;
};

class PianoTokens {
 public:
  virtual ~PianoTokens() = default;

  const std::string name;
  const int64_t vocabulary;  // the padding included
  const int pad, end;
  const int first;            // what a piece may begin with, to write one from nothing
  const int lowest, highest;  // pitches

  /// The tokens of a file (check_piano_file), `pedal` as in performed().
  virtual std::vector<int> encode(const MidiFile& file, bool pedal) const = 0;
  virtual Song play(const std::vector<int>& tokens) const = 0;
  /// Where a crop that shall begin at `at` does: at the last Bar not after it, or there.
  virtual int64_t crop_start(const std::vector<int>& tokens, int64_t at) const = 0;
  /// −1 where a token has none.
  virtual int pitch(int token) const = 0;
  /// A token `semitones` higher, chords too; pitches must stay among those that there are.
  virtual int transposed(int token, int semitones) const = 0;
  virtual std::unique_ptr<PianoGrammar> grammar() const = 0;

 protected:
  PianoTokens(std::string name_, int64_t vocabulary_, int pad_, int end_, int first_, int lowest_,
              int highest_)
      : name(std::move(name_)),
        vocabulary(vocabulary_),
        pad(pad_),
        end(end_),
        first(first_),
        lowest(lowest_),
        highest(highest_) {}
};

/// "remi" (remi.h) or "performance" (performance.h); UsageError for others.
const PianoTokens& piano_tokens(const std::string& name);

}  // namespace stretto::examples
