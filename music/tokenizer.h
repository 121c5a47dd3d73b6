// Tokenizations of music behind one interface, chosen by name.
//
// | name | tokens | source |
// | --- | --- | --- |
// | `remi` | bars, sixteenths, chords, tempos, and notes of a piano (remi.h) | Huang & Yang 2020 |
// | `performance` | note-ons, note-offs, velocities, shifts (performance.h) | Oore et al. 2018 |
// | `tsd` | time shifts, and notes with durations, one instrument (event_tokenizer.h) | MidiTok |
// | `tsd-multitrack` | the same with programs: all instruments and drums | MidiTok |
// | `remi-multitrack` | bars, positions, programs: all instruments and drums | MidiTok |
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "midi_file.h"
#include "midi_writer.h"

namespace stretto::music {

/// Follows the tokens of a piece and returns the tokens that are forbidden next. With tokens of
/// EventTokenizer, notes are then complete; with `performance`, a note-off has a sounding note;
/// with `remi`, beats do not go backward within a bar. The end token is always forbidden: a piece
/// ends at the caller's limit.
class Grammar {
 public:
  virtual ~Grammar() = default;
  /// Advances by a token.
  virtual void see(int64_t token) = 0;
  /// Returns the forbidden tokens, without padding.
  virtual std::vector<int64_t> forbidden() const = 0;
};

/// Converts MIDI files to tokens and tokens to songs.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  static constexpr int64_t max_beats = 40'000;  ///< the longest piece that check_file() accepts

  const std::string name;  ///< as in tokenizer()
  const int64_t pad;       ///< the id of padding
  const int64_t end;       ///< the id of the end of a piece
  const int64_t first;     ///< starts generation without a prompt
  const int64_t bar;       ///< begins a bar; −1 if the tokens have no bars
  const int lowest;        ///< the lowest pitch
  const int highest;       ///< the highest pitch
  const bool drums;        ///< true if drums have tokens; else they are left out

  /// Returns the number of ids, including padding; ids are 0 … size() − 1.
  int64_t size() const { return size_; }
  /// Returns the tokens of a file that check_file() accepts, with the end token.
  virtual std::vector<int64_t> encode(const MidiFile& file) const = 0;
  /// Returns the music of tokens in any order, up to the first end token.
  virtual Song decode(const std::vector<int64_t>& tokens) const = 0;
  /// Returns the name of a token, such as "Pitch_60"; "" for an id outside of 0 … size() − 1.
  virtual std::string token_name(int64_t token) const = 0;
  /// Returns the id of a name; −1 if no token has it.
  virtual int64_t id(const std::string& token_name) const;
  /// Returns the pitch of a token; −1 if it has none. Drums have none.
  virtual int pitch(int64_t token) const = 0;
  /// Returns a token `semitones` higher (chords, too). Throws Error if a pitch leaves the range, and
  /// for an id outside of 0 … size() − 1.
  virtual int64_t transposed(int64_t token, int semitones) const = 0;
  /// Returns the grammar of these tokens, at the beginning of a piece.
  virtual std::unique_ptr<Grammar> grammar() const = 0;

  /// Throws Error, naming `path`, for files of format 2, whose tracks are separate pieces, for
  /// files without notes (or with drums only, without `drums`) or with a note before tick 0, and if
  /// the last note ends after more than six hours or max_beats. Later events, such as a late End of
  /// Track, are ignored.
  void check_file(const MidiFile& file, const std::string& path) const;
  /// Returns a sentence for each time signature of a file that `encode` ignores because it has no
  /// token; at most max_midi_warnings, and none if the tokens have no meters.
  virtual std::vector<std::string> warnings(const MidiFile& file) const;

  /// Returns the start of a crop near `at`, an index of `tokens`: the last bar at or before `at`,
  /// or 0 if there is none; if the tokens have no bars, `at`.
  int64_t crop_start(const std::vector<int64_t>& tokens, int64_t at) const;

  /// Returns the lowest and the highest interval, within ±`most` semitones, at which all of
  /// `tokens` stay in range when transposed; {0, 0} if they have no pitches. Throws Error for an id
  /// outside of 0 … size() − 1.
  std::pair<int, int> transpositions(const std::vector<int64_t>& tokens, int most) const;

 protected:
  /// Throws Error unless `token` is one of 0 … size() − 1.
  void check_id(const char* op, int64_t token) const;
  /// Throws Error unless the pitch of a token stays in range.
  void check_transposed(int64_t token, int semitones) const;
  /// The ids of the constructor.
  struct Ids {
    int64_t pad;    ///< see Tokenizer::pad
    int64_t end;    ///< see Tokenizer::end
    int64_t first;  ///< see Tokenizer::first
    int64_t bar;    ///< see Tokenizer::bar
  };
  /// Sets the members.
  Tokenizer(std::string name_, int64_t size, Ids ids, int lowest_, int highest_,
            bool drums_ = false)
      : name(std::move(name_)),
        pad(ids.pad),
        end(ids.end),
        first(ids.first),
        bar(ids.bar),
        lowest(lowest_),
        highest(highest_),
        drums(drums_),
        size_(size) {}

 private:
  int64_t size_;
};

/// Returns a function that excludes the tokens that tokens->grammar() forbids after a sequence,
/// padding, and ids from size() on, by setting their logits to −∞; for
/// nn::SamplingOptions::constrain. It has no state, so that sequences of a batch can share it; each
/// call reads its sequence from the start. It throws Error for fewer than size() logits.
std::function<void(std::span<double> logits, const std::vector<int64_t>& sequence)> constrain(
    std::shared_ptr<const Tokenizer> tokens);

/// Options of tokenizer().
struct TokenizerOptions {
  bool pedal = false;   ///< performance: notes last while the sustain pedal is down
  bool chords = false;  ///< remi: chords are recognized (chords.h)
  /// Of tsd, tsd-multitrack and remi-multitrack; see EventTokenizerOptions
  /// @{
  bool time_signatures = false;         ///< bars follow the meter of the file
  bool rests = false;                   ///< Rest tokens
  bool sustain_pedals = false;          ///< Pedal and PedalOff tokens
  bool sustain_pedal_duration = false;  ///< Pedal and Duration tokens
  bool pitch_bends = false;             ///< PitchBend tokens
  /// @}
  bool operator==(const TokenizerOptions&) const = default;
};

/// Returns the names that tokenizer() accepts.
std::vector<std::string> tokenizer_names();

/// Returns a tokenizer by its name. Throws Error for an unknown name, and for an option that the
/// tokenizer does not have.
std::shared_ptr<const Tokenizer> tokenizer(const std::string& name,
                                           const TokenizerOptions& options = {});

}  // namespace stretto::music
