// The tokenizations of piano music (--tokens), with a common interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/midi/midi.h"
#include "examples/midi/midi_reader.h"

namespace stretto::examples {

/// Follows the tokens of a piece and returns the tokens that are forbidden next.
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
  const int64_t vocabulary;  ///< including padding
  const int pad, end;
  const int first;            ///< starts generation without a prompt
  const int lowest, highest;  ///< pitches

  /// Returns the tokens of a file (check_piano_file), with `pedal` as in performed().
  virtual std::vector<int> encode(const MidiFile& file, bool pedal) const = 0;
  virtual Song play(const std::vector<int>& tokens) const = 0;
  /// Returns the start of a crop that should begin at `at`: with remi the last Bar at or before
  /// `at`, else `at`.
  virtual int64_t crop_start(const std::vector<int>& tokens, int64_t at) const = 0;
  /// Returns the pitch of a token; −1 if it has none.
  virtual int pitch(int token) const = 0;
  /// Returns a token `semitones` higher (chords, too); pitches must stay in range.
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

/// Returns "remi" (remi.h) or "performance" (performance.h). Throws UsageError for any other name.
const PianoTokens& piano_tokens(const std::string& name);

}  // namespace stretto::examples
