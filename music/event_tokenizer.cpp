#include "music/event_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "music/piano_notes.h"

namespace stretto::music {
namespace {

constexpr int64_t steps_per_beat = 8, steps_per_bar = 32;
constexpr int lowest_pitch = 21, highest_pitch = 109, lowest_drum = 27, highest_drum = 88;
constexpr int drums_program = -1;
constexpr int64_t last_step = int64_t{1} << 22;  // later tokens are not decoded

enum class Kind { special, bar, pitch, velocity, duration, shift, position, drum, tempo, program };

// A time in steps as MidiTok writes it: beats, parts, and parts per beat.
std::string time_name(int64_t steps) {
  const int64_t parts = steps < 4 * steps_per_beat ? 8 : 4;
  const int64_t unit = steps_per_beat / parts;
  return std::to_string(steps / steps_per_beat) + "." +
         std::to_string(steps % steps_per_beat / unit) + "." + std::to_string(parts);
}

// The durations and time shifts in steps.
const std::vector<int64_t>& times() {
  static const auto all = [] {
    std::vector<int64_t> steps;
    for (int64_t i = 1; i <= 12 * steps_per_beat; i += i < 4 * steps_per_beat ? 1 : 2)
      steps.push_back(i);
    return steps;
  }();
  return all;
}

constexpr int n_velocities = 32, n_tempos = 32;
int velocity_of(int i) { return 127 * (i + 1) / n_velocities; }
double tempo_of(int i) { return std::round(100 * (40 + 210.0 * i / (n_tempos - 1))) / 100; }

// The index of the nearest of ascending values, the higher of two equally near ones.
template <class T>
size_t nearest(const std::vector<T>& values, T value) {
  const auto above = std::lower_bound(values.begin(), values.end(), value);
  if (above == values.begin()) return 0;
  const bool below = above == values.end() || value - *std::prev(above) < *above - value;
  return size_t(above - values.begin()) - (below ? 1 : 0);
}

// The shortest text of a tempo, with at least one decimal place.
std::string tempo_name(double tempo) {
  char text[32];
  std::string name(text, std::to_chars(text, text + sizeof text, tempo).ptr);
  return name.find('.') == std::string::npos ? name + ".0" : name;
}

struct Event {
  int64_t step;
  int instrument;  // −1: a tempo
  int tempo;       // index
  int pitch, velocity, duration;
};

// A note of an instrument, in steps.
struct TimedNote {
  int64_t start, duration;
  int pitch, velocity;
  bool operator<(const TimedNote& other) const {
    return std::tie(start, duration, pitch, velocity) <
           std::tie(other.start, other.duration, other.pitch, other.velocity);
  }
};

struct Instrument {
  int program;
  std::vector<TimedNote> notes;
};

int64_t duration_of(const MidiFile& file, const MidiNote& note) {
  const auto step = [&](int64_t tick) { return file.grid_step(tick, steps_per_beat); };
  const int64_t steps = file.division.ticks_per_quarter > 0
                            ? step(note.duration)
                            : step(note.start + note.duration) - step(note.start);
  return std::max<int64_t>(1, steps);
}

// The instruments of a file on the grid, by track, channel and program. With `programs`,
// instruments of the same program are then merged into the first one. Notes at the same time are
// in the order of the file; those of merged instruments by duration, pitch and velocity.
std::vector<Instrument> instruments(const MidiFile& file, bool programs) {
  std::map<std::tuple<int, int, int>, std::vector<TimedNote>> all;
  for (const MidiNote& note : file.notes) {
    const bool drum = note.channel == drum_channel;
    if (drum && !programs) continue;
    const auto key = std::tuple(note.track, note.channel, drum ? drums_program : note.program);
    all[programs ? key : std::tuple(0, 0, 0)].push_back({file.grid_step(note.start, steps_per_beat),
                                                         duration_of(file, note), note.pitch,
                                                         note.velocity});
  }
  std::vector<Instrument> merged;
  std::map<int, size_t> places;  // of programs
  std::set<size_t> several;      // merged ones
  for (auto& [key, notes] : all) {
    const int program = std::get<2>(key);
    const auto [place, added] = places.try_emplace(program, merged.size());
    if (added) {
      merged.push_back({program, std::move(notes)});
    } else {
      std::vector<TimedNote>& before = merged[place->second].notes;
      before.insert(before.end(), notes.begin(), notes.end());
      several.insert(place->second);
    }
  }
  for (const size_t i : several) std::sort(merged[i].notes.begin(), merged[i].notes.end());
  return merged;
}

// The tempos of a file: step and index. The first one is at step 0. Tempos that are later than the
// last note that check_file() accepts are left out: the time up to them would take many tokens.
std::vector<std::pair<int64_t, int>> tempos_of(const MidiFile& file) {
  static const auto microseconds = [] {
    std::vector<double> all;  // ascending
    for (int i = n_tempos - 1; i >= 0; --i) all.push_back(60e6 / tempo_of(i));
    return all;
  }();
  const auto index = [&](int value) {
    return n_tempos - 1 - int(nearest(microseconds, double(value)));
  };
  std::vector<std::pair<int64_t, int>> tempos;
  for (const TempoChange& change : file.tempo_map().changes()) {
    const int64_t step = file.grid_step(change.tick, steps_per_beat);
    if (step > steps_per_beat * Tokenizer::max_beats) break;
    if (!tempos.empty() && tempos.back().first == step) tempos.pop_back();
    tempos.emplace_back(step, index(change.microseconds_per_quarter));
  }
  if (tempos.empty() || tempos.front().first != 0)
    tempos.insert(tempos.begin(), {0, index(500000)});
  return tempos;
}

}  // namespace

class EventVocabulary {
 public:
  struct Word {
    std::string name;
    Kind kind;
    int value;
  };

  explicit EventVocabulary(const EventTokenizerOptions& o) {
    for (const char* name : {"PAD", "BOS", "EOS", "MASK"})
      add(std::string(name) + "_None", Kind::special, int(words.size()));
    const bool bars = o.time == EventTime::bars;
    if (bars) add("Bar_None", Kind::bar, 0);
    for (int p = lowest_pitch; p <= highest_pitch; ++p) add_number("Pitch", Kind::pitch, p);
    for (int i = 0; i < n_velocities; ++i) add_number("Velocity", Kind::velocity, velocity_of(i));
    for (const int64_t steps : times())
      add("Duration_" + time_name(steps), Kind::duration, int(steps));
    if (bars)
      for (int i = 0; i < steps_per_bar; ++i) add_number("Position", Kind::position, i);
    else
      for (const int64_t steps : times())
        add("TimeShift_" + time_name(steps), Kind::shift, int(steps));
    for (int p = lowest_drum; p <= highest_drum; ++p) add_number("PitchDrum", Kind::drum, p);
    if (o.tempos)
      for (int i = 0; i < n_tempos; ++i) add("Tempo_" + tempo_name(tempo_of(i)), Kind::tempo, i);
    if (o.programs) {
      for (int i = 0; i < 128; ++i) add_number("Program", Kind::program, i);
      add_number("Program", Kind::program, drums_program);
    }
  }

  void add(std::string name, Kind kind, int value) {
    ids.emplace(name, words.size());
    places.emplace(std::pair(kind, value), words.size());
    words.push_back({std::move(name), kind, value});
  }
  void add_number(const std::string& type, Kind kind, int value) {
    add(type + "_" + std::to_string(value), kind, value);
  }
  int64_t id(Kind kind, int value = 0) const { return places.at({kind, value}); }
  // The word of an id; PAD for an id out of range.
  const Word& word(int64_t token) const {
    return words[token >= 0 && size_t(token) < words.size() ? size_t(token) : 0];
  }

  std::vector<Word> words;
  std::map<std::string, int64_t> ids;
  std::map<std::pair<Kind, int>, int64_t> places;
};

namespace {

constexpr int special_end = 2, special_start = 1;

// A note is Program (with programs), Pitch or PitchDrum, Velocity and Duration. Tempos follow a
// time; positions and bars go forwards.
class EventGrammar : public Grammar {
 public:
  EventGrammar(std::shared_ptr<const EventVocabulary> words, const EventTokenizerOptions& options)
      : words_(std::move(words)), options_(options), last_(words_->words[special_start]) {}

  void see(int64_t token) override {
    if (token < 0 || size_t(token) >= words_->words.size()) return;
    last_ = words_->words[size_t(token)];
    if (last_.kind == Kind::bar) position_ = -1;
    if (last_.kind == Kind::position) position_ = last_.value;
    if (last_.kind == Kind::program) drums_ = last_.value == drums_program;
    if (last_.kind == Kind::bar) begun_ = true;
  }

  std::vector<int64_t> forbidden() const override {
    std::vector<int64_t> ids;
    for (size_t i = 1; i < words_->words.size(); ++i)
      if (!allows(words_->words[i])) ids.push_back(int64_t(i));
    return ids;
  }

 private:
  bool allows(const EventVocabulary::Word& next) const {
    const bool in_note = last_.kind == Kind::pitch || last_.kind == Kind::drum;
    if (in_note) return next.kind == Kind::velocity;
    if (last_.kind == Kind::velocity) return next.kind == Kind::duration;
    if (last_.kind == Kind::program) return next.kind == (drums_ ? Kind::drum : Kind::pitch);
    const bool placed =
        options_.time == EventTime::shifts || position_ >= 0;  // events need a position
    switch (next.kind) {
      case Kind::bar:
        return last_.kind != Kind::position;
      case Kind::position:
        return begun_ && next.value > position_ && last_.kind != Kind::position;
      case Kind::shift:
        return true;
      case Kind::program:
        return placed;
      case Kind::pitch:
        return placed && !options_.programs;
      case Kind::tempo:
        return last_.kind == Kind::position || last_.kind == Kind::shift;
      default:
        return false;
    }
  }

  std::shared_ptr<const EventVocabulary> words_;
  EventTokenizerOptions options_;
  EventVocabulary::Word last_;
  int position_ = -1;
  bool begun_ = false, drums_ = false;
};

}  // namespace

EventTokenizer::EventTokenizer(std::string name_, const EventTokenizerOptions& options)
    : EventTokenizer(std::move(name_), options, std::make_shared<const EventVocabulary>(options)) {}

EventTokenizer::EventTokenizer(std::string name_, const EventTokenizerOptions& options,
                               std::shared_ptr<const EventVocabulary> words)
    : Tokenizer(std::move(name_), int64_t(words->words.size()),
                {.pad = 0,
                 .end = special_end,
                 .first = options.time == EventTime::bars ? words->id(Kind::bar)
                          : options.tempos                ? words->id(Kind::tempo, 12)  // 121.29
                                                          : special_start,
                 .bar = options.time == EventTime::bars ? words->id(Kind::bar) : -1},
                lowest_pitch, highest_pitch, options.programs),
      options_(options),
      words_(std::move(words)) {}

EventTokenizer::~EventTokenizer() = default;

std::vector<int64_t> EventTokenizer::encode(const MidiFile& file) const {
  const std::vector<Instrument> all = instruments(file, options_.programs);
  std::vector<Event> events;
  if (options_.tempos)
    for (const auto& [step, tempo] : tempos_of(file)) events.push_back({step, -1, tempo, 0, 0, 0});
  static const auto velocities = [] {
    std::vector<int> values;
    for (int i = 0; i < n_velocities; ++i) values.push_back(velocity_of(i));
    return values;
  }();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool drum = all[i].program == drums_program;
    for (const TimedNote& note : all[i].notes) {
      if (note.pitch < (drum ? lowest_drum : lowest_pitch)) continue;
      if (note.pitch > (drum ? highest_drum : highest_pitch)) continue;
      events.push_back({note.start, int(i), 0, note.pitch,
                        velocities[nearest(velocities, note.velocity)],
                        int(times()[nearest(times(), note.duration)])});
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.step < b.step; });

  std::vector<int64_t> tokens;
  int64_t now = options_.time == EventTime::bars ? -1 : 0, bars = -1;
  const auto move_to = [&](int64_t step) {
    if (step == now) return;
    if (options_.time == EventTime::bars) {
      for (; bars < step / steps_per_bar; ++bars) tokens.push_back(words_->id(Kind::bar));
      tokens.push_back(words_->id(Kind::position, int(step % steps_per_bar)));
      now = step;
      return;
    }
    while (now < step) {
      const auto above = std::upper_bound(times().begin(), times().end(), step - now);
      const int64_t shift = *std::prev(above);
      tokens.push_back(words_->id(Kind::shift, int(shift)));
      now += shift;
    }
  };
  for (const Event& event : events) {
    move_to(event.step);
    if (event.instrument < 0) {
      tokens.push_back(words_->id(Kind::tempo, event.tempo));
      continue;
    }
    const int program = all[size_t(event.instrument)].program;
    if (options_.programs) tokens.push_back(words_->id(Kind::program, program));
    tokens.push_back(words_->id(program == drums_program ? Kind::drum : Kind::pitch, event.pitch));
    tokens.push_back(words_->id(Kind::velocity, event.velocity));
    tokens.push_back(words_->id(Kind::duration, event.duration));
  }
  tokens.push_back(end);
  return tokens;
}

Song EventTokenizer::decode(const std::vector<int64_t>& tokens) const {
  constexpr int ticks = 60;  // a step
  Song song{int(steps_per_beat) * ticks, 120, {}, {}};
  std::map<int, size_t> places;  // of programs in song.tracks
  std::map<int64_t, double> tempos;
  const auto track = [&](int program) -> Track& {
    const auto [place, added] = places.try_emplace(program, song.tracks.size());
    if (added) {
      const bool drum = program == drums_program;
      const int used = int(song.tracks.size()) - int(places.contains(drums_program));
      const int channel = drum ? drum_channel : (used % 15) + (used % 15 >= drum_channel ? 1 : 0);
      const std::string title = drum           ? "Drums"
                                : program == 0 ? "Piano"
                                               : "Program " + std::to_string(program);
      song.tracks.push_back({title, channel, drum ? 0 : program, {}});
    }
    return song.tracks[place->second];
  };
  int64_t now = 0, bars = -1;
  int program = 0;
  for (size_t i = 0; i < tokens.size() && tokens[i] != end && now < last_step; ++i) {
    const EventVocabulary::Word& word = words_->word(tokens[i]);
    const auto next = [&](size_t after) {
      return words_->word(i + after < tokens.size() ? tokens[i + after] : pad);
    };
    if (word.kind == Kind::shift) now += word.value;
    if (word.kind == Kind::bar) now = steps_per_bar * ++bars;
    if (word.kind == Kind::position) now = steps_per_bar * std::max<int64_t>(bars, 0) + word.value;
    if (word.kind == Kind::program) program = word.value;
    if (word.kind == Kind::tempo) tempos[now] = tempo_of(word.value);
    const bool drum = word.kind == Kind::drum;
    if ((!drum && word.kind != Kind::pitch) || next(1).kind != Kind::velocity ||
        next(2).kind != Kind::duration)
      continue;
    track(drum ? drums_program : std::max(program, 0))
        .notes.push_back({int(now) * ticks, next(2).value * ticks, word.value, next(1).value});
  }
  if (song.tracks.empty()) track(0);
  for (const auto& [step, tempo] : tempos) {
    if (step == 0)
      song.quarters_per_minute = tempo;
    else
      song.tempos.push_back({int(step) * ticks, tempo});
  }
  return song;
}

std::string EventTokenizer::token_name(int64_t token) const {
  return token >= 0 && token < size() ? words_->word(token).name : "";
}

int64_t EventTokenizer::id(const std::string& token_name) const {
  const auto it = words_->ids.find(token_name);
  return it == words_->ids.end() ? -1 : it->second;
}

int EventTokenizer::pitch(int64_t token) const {
  const EventVocabulary::Word& word = words_->word(token);
  return word.kind == Kind::pitch ? word.value : -1;
}

int64_t EventTokenizer::transposed(int64_t token, int semitones) const {
  if (pitch(token) < 0) return token;
  check_transposed(token, semitones);
  return words_->id(Kind::pitch, pitch(token) + semitones);
}

std::unique_ptr<Grammar> EventTokenizer::grammar() const {
  return std::make_unique<EventGrammar>(words_, options_);
}

}  // namespace stretto::music
