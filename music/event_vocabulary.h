// The words of EventTokenizer, their grammar, and the time that a sequence of them describes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "event_tokenizer.h"

namespace stretto::music {

/// Kinds of words, with the meaning of EventWord::value.
enum class EventKind {
  special,    // 0 to 3: PAD, BOS, EOS, MASK
  bar,        // 0
  pitch,      // MIDI note number
  velocity,   // 1 to 127
  duration,   // eighths of a beat
  shift,      // eighths of a beat
  position,   // eighths of a beat
  drum,       // MIDI note number
  tempo,      // index, see event_tempo()
  program,    // 0 to 127; −1: drums
  meter,      // index into event_meters()
  rest,       // eighths of a beat
  pedal,      // as program; the sustain pedal goes down
  pedal_off,  // as program
  bend        // −8192 to 8191
};

/// A word of the vocabulary.
struct EventWord {
  std::string name;
  EventKind kind;
  int value;
};

/// A meter: `numerator` beats per bar, each a note of value `denominator`.
struct EventMeter {
  int numerator, denominator;
  bool operator==(const EventMeter&) const = default;
};

inline constexpr int event_parts = 8;  // positions of a beat
inline constexpr int lowest_event_pitch = 21, highest_event_pitch = 109;
inline constexpr int lowest_event_drum = 27, highest_event_drum = 88;
inline constexpr int drums_program = -1;
inline constexpr int n_event_velocities = 32, n_event_tempos = 32;
inline constexpr int special_start = 1, special_end = 2;
inline constexpr int common_time = 8;  // of event_meters(): 4/4, the meter of files without one

/// The durations and time shifts in eighths of a beat, in ascending order.
const std::vector<int64_t>& event_times();
/// The rests in eighths of a beat, in ascending order.
const std::vector<int64_t>& event_rests();
/// The pitch bends in ascending order.
const std::vector<int>& event_bends();
/// The meters that have tokens, in the order of their ids.
const std::vector<EventMeter>& event_meters();
/// The index of a meter; −1 if it has no token.
int event_meter(const TimeSignature& signature);
/// The velocity of an index, ascending.
constexpr int event_velocity(int i) { return 127 * (i + 1) / n_event_velocities; }
/// The quarter notes per minute of an index, ascending.
double event_tempo(int i);

/// The words of a tokenizer, by id and by kind.
class EventVocabulary {
 public:
  explicit EventVocabulary(const EventTokenizerOptions& options);

  int64_t id(EventKind kind, int value = 0) const { return places_.at({kind, value}); }
  /// Returns −1 for a name that no word has.
  int64_t id(const std::string& name) const;
  /// Returns PAD for an id out of range.
  const EventWord& word(int64_t token) const {
    return words_[token >= 0 && size_t(token) < words_.size() ? size_t(token) : 0];
  }
  int64_t size() const { return int64_t(words_.size()); }

 private:
  void add(std::string name, EventKind kind, int value);
  void add_number(const std::string& type, EventKind kind, int value);
  void add_programs(const std::string& type, EventKind kind, bool all);

  std::vector<EventWord> words_;
  std::map<std::string, int64_t> ids_;
  std::map<std::pair<EventKind, int>, int64_t> places_;
};

/// Bars and positions in a grid of `per_quarter` steps per quarter note, under a meter.
struct EventGrid {
  int64_t per_quarter;
  EventMeter meter = event_meters()[common_time];

  int64_t beat() const { return 4 * per_quarter / meter.denominator; }
  int64_t part() const { return beat() / event_parts; }
  int64_t bar() const { return beat() * meter.numerator; }
};

/// The time of a sequence of words in any order, in steps of the grid. A meter that is not at the
/// beginning of a bar is ignored.
class EventClock {
 public:
  EventClock(const EventTokenizerOptions& options, int64_t per_quarter)
      : bars_(options.time == EventTime::bars), grid_{per_quarter} {}

  void see(const EventWord& word);

  int64_t now() const { return now_; }
  const EventGrid& grid() const { return grid_; }
  /// True if a bar begins now.
  bool at_bar() const;
  /// The time of a position in the present bar.
  int64_t time_of(int position) const { return bar_start_ + position * grid_.part(); }

 private:
  bool bars_;
  EventGrid grid_;
  int64_t now_ = 0, bar_start_ = 0, meter_start_ = 0;
  int64_t end_ = 0;     // of all notes so far; rests begin there
  bool begun_ = false;  // a bar
  bool in_note_ = false;
};

/// Returns the grammar of EventTokenizer.
std::unique_ptr<Grammar> event_grammar(std::shared_ptr<const EventVocabulary> words,
                                       const EventTokenizerOptions& options);

}  // namespace stretto::music
