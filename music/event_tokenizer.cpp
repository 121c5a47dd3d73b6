#include "music/event_tokenizer.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "music/event_score.h"
#include "music/piano_notes.h"

namespace stretto::music {
namespace {

constexpr int64_t last_step = int64_t{1} << 22;  // in eighths of a quarter; later: not decoded

// Writes events in order as tokens, with the time between them.
class EventWriter {
 public:
  EventWriter(const EventVocabulary& words, const EventTokenizerOptions& options,
              int64_t per_quarter)
      : words_(words), options_(options), bars_(options.time == EventTime::bars) {
    grid_.per_quarter = per_quarter;
    if (bars_) now_ = -1;
  }

  void add(const ScoreEvent& event) {
    move_to(event.step, event.kind == EventKind::meter);
    switch (event.kind) {
      case EventKind::meter:
        grid_.meter = event_meters()[size_t(event.value)];
        meter_ = event.value;
        meter_start_ = event.step;
        write(event.kind, event.value);
        if (bars_) now_ = -1;  // a position follows
        break;
      case EventKind::tempo:
      case EventKind::pedal_off:
        write(event.kind, event.value);
        break;
      case EventKind::pedal:
        write(event.kind, event.value);
        if (options_.sustain_pedal_duration) write(EventKind::duration, int(event.duration));
        break;
      case EventKind::bend:
        if (options_.programs) write(EventKind::program, event.program);
        write(event.kind, event.value);
        break;
      default:
        end_ = std::max(end_, event.step + event.duration * grid_.part());
        if (options_.programs) write(EventKind::program, event.program);
        write(event.kind, event.value);
        write(EventKind::velocity, event.velocity);
        write(EventKind::duration, int(event.duration));
    }
    end_ = std::max(end_, event.step);
  }

  std::vector<int64_t> tokens;

 private:
  void write(EventKind kind, int value = 0) { tokens.push_back(words_.id(kind, value)); }

  void move_to(int64_t step, bool to_meter) {
    if (step == now_) return;
    if (options_.rests && step - end_ >= grid_.part()) write_rests(step);
    if (bars_) {
      write_bars(step, to_meter);
      if (!to_meter) write(EventKind::position, int((step - bar_start_) / grid_.part()));
    } else {
      write_times(EventKind::shift, event_times(), step);
    }
    now_ = step;
  }

  // Each bar begins with its meter, which the event writes if it is one.
  void write_bars(int64_t step, bool to_meter) {
    while (bar_start_ < 0 || bar_start_ + grid_.bar() <= step) {
      bar_start_ = bar_start_ < 0 ? 0 : bar_start_ + grid_.bar();
      write(EventKind::bar);
      const bool last = bar_start_ + grid_.bar() > step;
      if (options_.time_signatures && !(to_meter && last)) write(EventKind::meter, meter_);
    }
  }

  // The bars of a rest are not written.
  void write_rests(int64_t step) {
    now_ = std::max(now_, end_);
    write_times(EventKind::rest, event_rests(), step);
    if (bars_) bar_start_ = now_ - (now_ - meter_start_) % grid_.bar();
  }

  // A remainder below an eighth of a beat has no token.
  void write_times(EventKind kind, const std::vector<int64_t>& times, int64_t step) {
    for (int64_t left = (step - now_) / grid_.part(); left > 0;) {
      const int64_t time = *std::prev(std::upper_bound(times.begin(), times.end(), left));
      write(kind, int(time));
      left -= time;
      now_ += time * grid_.part();
    }
  }

  const EventVocabulary& words_;
  const EventTokenizerOptions& options_;
  bool bars_;
  EventGrid grid_{event_parts};
  int meter_ = common_time;
  int64_t now_ = 0, bar_start_ = -1;  // −1: none yet
  int64_t meter_start_ = 0;
  int64_t end_ = 0;  // of all events so far
};

// The music of decoded tokens; 480 ticks per quarter note.
class SongWriter {
 public:
  static constexpr int ticks_per_quarter = 480;

  Track& track(int program) {
    const auto [place, added] = places_.try_emplace(program, song_.tracks.size());
    if (added) {
      const bool drum = program == drums_program;
      const int used = int(song_.tracks.size()) - int(places_.contains(drums_program));
      const int channel = drum ? drum_channel : (used % 15) + (used % 15 >= drum_channel ? 1 : 0);
      const std::string title = drum           ? "Drums"
                                : program == 0 ? "Piano"
                                               : "Program " + std::to_string(program);
      song_.tracks.push_back({title, channel, drum ? 0 : program, {}});
    }
    return song_.tracks[place->second];
  }

  void press_pedal(int program, int64_t tick) {
    if (down_.insert(program).second)
      track(program).controls.push_back({int(tick), sustain_pedal, 127});
  }
  void release_pedal(int program, int64_t tick) {
    if (down_.erase(program) > 0) track(program).controls.push_back({int(tick), sustain_pedal, 0});
  }

  Song finished(int64_t end) {
    while (!down_.empty()) release_pedal(*down_.begin(), end);
    if (song_.tracks.empty()) track(0);
    for (const auto& [tick, tempo] : tempos) {
      if (tick == 0)
        song_.quarters_per_minute = tempo;
      else
        song_.tempos.push_back({int(tick), tempo});
    }
    for (const auto& [tick, meter] : meters)
      song_.meters.push_back({int(tick), meter.numerator, meter.denominator});
    return song_;
  }

  std::map<int64_t, double> tempos;      // by tick
  std::map<int64_t, EventMeter> meters;  // by tick

 private:
  Song song_{ticks_per_quarter, 120, {}, {}, {}};
  std::map<int, size_t> places_;  // of programs in song_.tracks
  std::set<int> down_;            // pedals, by program
};

}  // namespace

EventTokenizer::EventTokenizer(std::string name_, const EventTokenizerOptions& options)
    : EventTokenizer(std::move(name_), options, std::make_shared<const EventVocabulary>(options)) {}

EventTokenizer::EventTokenizer(std::string name_, const EventTokenizerOptions& options,
                               std::shared_ptr<const EventVocabulary> words)
    : Tokenizer(std::move(name_), words->size(),
                {.pad = 0,
                 .end = special_end,
                 .first = options.time == EventTime::bars ? words->id(EventKind::bar)
                          : options.time_signatures       ? words->id(EventKind::meter, common_time)
                          : options.tempos ? words->id(EventKind::tempo, 12)  // 121.29
                                           : special_start,
                 .bar = options.time == EventTime::bars ? words->id(EventKind::bar) : -1},
                lowest_event_pitch, highest_event_pitch, options.programs),
      options_(options),
      words_(std::move(words)) {
  check(options.sustain_pedals || !options.sustain_pedal_duration, "tokenizer",
        "sustain_pedal_duration needs sustain_pedals");
}

EventTokenizer::~EventTokenizer() = default;

std::vector<int64_t> EventTokenizer::encode(const MidiFile& file) const {
  const EventScore score = event_score(file, options_);
  EventWriter writer(*words_, options_, score.per_quarter);
  for (const ScoreEvent& event : score.events) writer.add(event);
  writer.tokens.push_back(end);
  return std::move(writer.tokens);
}

std::vector<std::string> EventTokenizer::warnings(const MidiFile& file) const {
  std::vector<std::string> all;
  for (const TimeSignature& meter : file.time_signatures)
    if (options_.time_signatures && event_meter(meter) < 0 && all.size() < max_midi_warnings)
      all.push_back("the time signature " + std::to_string(meter.numerator) + "/" +
                    std::to_string(meter.denominator) + " at tick " + std::to_string(meter.tick) +
                    " has no token and is ignored");
  return all;
}

Song EventTokenizer::decode(const std::vector<int64_t>& tokens) const {
  SongWriter song;
  EventClock clock(options_, SongWriter::ticks_per_quarter);
  constexpr int64_t last = last_step * SongWriter::ticks_per_quarter / event_parts;
  int program = 0;
  for (size_t i = 0; i < tokens.size() && tokens[i] != end && clock.now() < last; ++i) {
    const EventWord& word = words_->word(tokens[i]);
    const auto next = [&](size_t after) {
      return words_->word(i + after < tokens.size() ? tokens[i + after] : pad);
    };
    const EventMeter meter = clock.grid().meter;
    clock.see(word);
    if (word.kind == EventKind::program) program = word.value;
    if (word.kind == EventKind::bend)
      song.track(program).bends.push_back({int(clock.now()), word.value});
    if (word.kind == EventKind::pedal_off) song.release_pedal(word.value, clock.now());
    if (word.kind == EventKind::pedal && !options_.sustain_pedal_duration)
      song.press_pedal(word.value, clock.now());
    if (word.kind == EventKind::pedal && next(1).kind == EventKind::duration) {
      song.press_pedal(word.value, clock.now());
      song.release_pedal(word.value, clock.now() + next(1).value * clock.grid().part());
    }
    if (word.kind == EventKind::tempo) song.tempos[clock.now()] = event_tempo(word.value);
    if (word.kind == EventKind::meter && (clock.now() == 0 || clock.grid().meter != meter))
      song.meters[clock.now()] = clock.grid().meter;
    const bool drum = word.kind == EventKind::drum;
    if ((!drum && word.kind != EventKind::pitch) || next(1).kind != EventKind::velocity ||
        next(2).kind != EventKind::duration)
      continue;
    song.track(drum ? drums_program : std::max(program, 0))
        .notes.push_back({int(clock.now()), int(next(2).value * clock.grid().part()), word.value,
                          next(1).value});
  }
  return song.finished(clock.now());
}

std::string EventTokenizer::token_name(int64_t token) const {
  return token >= 0 && token < size() ? words_->word(token).name : "";
}

int64_t EventTokenizer::id(const std::string& token_name) const { return words_->id(token_name); }

int EventTokenizer::pitch(int64_t token) const {
  const EventWord& word = words_->word(token);
  return word.kind == EventKind::pitch ? word.value : -1;
}

int64_t EventTokenizer::transposed(int64_t token, int semitones) const {
  check_id("transposed", token);
  if (pitch(token) < 0) return token;
  check_transposed(token, semitones);
  return words_->id(EventKind::pitch, pitch(token) + semitones);
}

std::unique_ptr<Grammar> EventTokenizer::grammar() const { return event_grammar(words_, options_); }

}  // namespace stretto::music
