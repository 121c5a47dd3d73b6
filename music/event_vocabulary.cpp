#include "music/event_vocabulary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace stretto::music {
namespace {

// A time as MidiTok writes it: beats, parts, and parts per beat.
std::string time_name(int64_t eighths, int64_t parts) {
  return std::to_string(eighths / event_parts) + "." +
         std::to_string(eighths % event_parts * parts / event_parts) + "." + std::to_string(parts);
}

// The shortest text of a tempo, with at least one decimal place.
std::string tempo_name(double tempo) {
  char text[32];
  std::string name(text, std::to_chars(text, text + sizeof text, tempo).ptr);
  return name.find('.') == std::string::npos ? name + ".0" : name;
}

std::string meter_name(const EventMeter& meter) {
  return std::to_string(meter.numerator) + "/" + std::to_string(meter.denominator);
}

// Times up to 12 beats, in eighths of a beat; `step` is the distance of a time to the next one.
std::vector<int64_t> times(int (*step)(int64_t time)) {
  std::vector<int64_t> eighths;
  for (int64_t i = 1; i <= 12 * event_parts; i += step(i)) eighths.push_back(i);
  return eighths;
}

}  // namespace

const std::vector<int64_t>& event_times() {
  static const auto all = times([](int64_t time) { return time < 4 * event_parts ? 1 : 2; });
  return all;
}

const std::vector<int64_t>& event_rests() {
  static const auto all = times([](int64_t time) { return time < 8 ? 1 : time < 16 ? 2 : 4; });
  return all;
}

const std::vector<int>& event_bends() {
  static const auto all = [] {
    std::vector<int> values;
    for (int i = 0; i < 32; ++i) values.push_back(int(std::floor(-8192 + i * 16383.0 / 31)));
    return values;
  }();
  return all;
}

const std::vector<EventMeter>& event_meters() {
  static const std::vector<EventMeter> all{{3, 8}, {12, 8}, {6, 8}, {5, 4}, {6, 4},
                                           {3, 4}, {2, 4},  {1, 4}, {4, 4}};
  return all;
}

int event_meter(const TimeSignature& signature) {
  const EventMeter meter{signature.numerator, signature.denominator};
  const auto it = std::find(event_meters().begin(), event_meters().end(), meter);
  return it == event_meters().end() ? -1 : int(it - event_meters().begin());
}

double event_tempo(int i) {
  return std::round(100 * (40 + 210.0 * i / (n_event_tempos - 1))) / 100;
}

EventVocabulary::EventVocabulary(const EventTokenizerOptions& o) {
  for (const char* name : {"PAD", "BOS", "EOS", "MASK"})
    add(std::string(name) + "_None", EventKind::special, int(words_.size()));
  const bool bars = o.time == EventTime::bars;
  if (bars) add("Bar_None", EventKind::bar, 0);
  for (int p = lowest_event_pitch; p <= highest_event_pitch; ++p)
    add_number("Pitch", EventKind::pitch, p);
  for (int i = 0; i < n_event_velocities; ++i)
    add_number("Velocity", EventKind::velocity, event_velocity(i));
  for (const int64_t eighths : event_times())
    add("Duration_" + time_name(eighths, eighths < 32 ? 8 : 4), EventKind::duration, int(eighths));
  const int positions = event_parts * (o.time_signatures ? 12 : 4);  // of the longest bar
  for (int i = 0; bars && i < positions; ++i) add_number("Position", EventKind::position, i);
  for (size_t i = 0; !bars && i < event_times().size(); ++i)
    add("TimeShift_" + time_name(event_times()[i], i < 31 ? 8 : 4), EventKind::shift,
        int(event_times()[i]));
  for (int p = lowest_event_drum; p <= highest_event_drum; ++p)
    add_number("PitchDrum", EventKind::drum, p);
  for (size_t i = 0; o.rests && i < event_rests().size(); ++i)
    add("Rest_" + time_name(event_rests()[i], i < 7    ? 8
                                              : i < 11 ? 4
                                                       : 2),
        EventKind::rest, int(event_rests()[i]));
  for (int i = 0; o.tempos && i < n_event_tempos; ++i)
    add("Tempo_" + tempo_name(event_tempo(i)), EventKind::tempo, i);
  if (o.programs) add_programs("Program", EventKind::program, true);
  for (size_t i = 0; o.time_signatures && i < event_meters().size(); ++i)
    add("TimeSig_" + meter_name(event_meters()[i]), EventKind::meter, int(i));
  if (o.sustain_pedals) add_programs("Pedal", EventKind::pedal, o.programs);
  if (o.sustain_pedals && !o.sustain_pedal_duration)
    add_programs("PedalOff", EventKind::pedal_off, o.programs);
  for (size_t i = 0; o.pitch_bends && i < event_bends().size(); ++i)
    add_number("PitchBend", EventKind::bend, event_bends()[i]);
}

void EventVocabulary::add(std::string name, EventKind kind, int value) {
  ids_.emplace(name, words_.size());
  places_.emplace(std::pair(kind, value), words_.size());
  words_.push_back({std::move(name), kind, value});
}

void EventVocabulary::add_number(const std::string& type, EventKind kind, int value) {
  add(type + "_" + std::to_string(value), kind, value);
}

// One word, or one for each program and for drums.
void EventVocabulary::add_programs(const std::string& type, EventKind kind, bool all) {
  for (int i = 0; i < (all ? 128 : 1); ++i) add_number(type, kind, i);
  if (all) add_number(type, kind, drums_program);
}

int64_t EventVocabulary::id(const std::string& name) const {
  const auto it = ids_.find(name);
  return it == ids_.end() ? -1 : it->second;
}

bool EventClock::at_bar() const {
  return bars_ ? now_ == bar_start_ : (now_ - meter_start_) % grid_.bar() == 0;
}

void EventClock::see(const EventWord& word) {
  switch (word.kind) {
    case EventKind::shift:
      now_ += word.value * grid_.part();
      break;
    case EventKind::bar:
      if (begun_) bar_start_ += grid_.bar();
      now_ = bar_start_;
      begun_ = true;
      break;
    case EventKind::position:
      now_ = time_of(word.value);
      begun_ = true;
      break;
    case EventKind::rest:
      now_ = std::max(now_, end_) + word.value * grid_.part();
      if (bars_) bar_start_ = now_ - (now_ - meter_start_) % grid_.bar();
      begun_ = true;
      break;
    case EventKind::meter:
      if (!at_bar()) break;
      grid_.meter = event_meters()[size_t(word.value)];
      meter_start_ = now_;
      break;
    case EventKind::duration:
      if (in_note_) end_ = std::max(end_, now_ + word.value * grid_.part());
      break;
    default:
      end_ = std::max(end_, now_);
  }
  in_note_ = word.kind == EventKind::velocity;
}

namespace {

// A note is Program (with programs), Pitch or PitchDrum, Velocity and Duration. Tempos follow a
// time; positions and bars go forward; meters change at the beginning of a bar.
class EventGrammar : public Grammar {
 public:
  EventGrammar(std::shared_ptr<const EventVocabulary> words, const EventTokenizerOptions& options)
      : words_(std::move(words)),
        options_(options),
        last_(words_->word(special_start)),
        clock_(options, 2 * event_parts) {}

  void see(int64_t token) override {
    if (token < 0 || token >= words_->size()) return;
    last_ = words_->word(token);
    clock_.see(last_);
    if (last_.kind == EventKind::bar || last_.kind == EventKind::rest)
      placed_ = false, begun_ = true;
    if (last_.kind == EventKind::position) placed_ = true;
    if (last_.kind == EventKind::program) drums_ = last_.value == drums_program;
    if (last_.kind == EventKind::pedal) down_.insert(last_.value);
    if (last_.kind == EventKind::pedal_off) down_.erase(last_.value);
  }

  std::vector<int64_t> forbidden() const override {
    std::vector<int64_t> ids;
    for (int64_t id = 1; id < words_->size(); ++id)
      if (!allows(words_->word(id))) ids.push_back(id);
    return ids;
  }

 private:
  bool allows(const EventWord& next) const {
    const bool bars = options_.time == EventTime::bars;
    const bool in_note = last_.kind == EventKind::pitch || last_.kind == EventKind::drum;
    if (in_note) return next.kind == EventKind::velocity;
    if (last_.kind == EventKind::velocity ||
        (last_.kind == EventKind::pedal && options_.sustain_pedal_duration))
      return next.kind == EventKind::duration;
    if (last_.kind == EventKind::program)
      return next.kind == (drums_ ? EventKind::drum : EventKind::pitch) ||
             next.kind == EventKind::bend;
    if (last_.kind == EventKind::bar && options_.time_signatures)
      return next.kind == EventKind::meter;
    const bool placed = !bars || placed_;  // events need a position
    switch (next.kind) {
      case EventKind::bar:
      case EventKind::rest:
        return last_.kind != EventKind::position;
      case EventKind::position:
        return begun_ && last_.kind != EventKind::position && in_bar(next.value);
      case EventKind::shift:
        return true;
      case EventKind::program:
        return placed;
      case EventKind::pitch:
      case EventKind::bend:
        return placed && !options_.programs;
      case EventKind::pedal:
        return placed && (options_.sustain_pedal_duration || !down_.contains(next.value));
      case EventKind::pedal_off:
        return placed && down_.contains(next.value);
      case EventKind::tempo:
        return last_.kind == EventKind::position || last_.kind == EventKind::shift ||
               (!bars && (last_.kind == EventKind::meter || last_.kind == EventKind::rest ||
                          last_.kind == EventKind::special));
      case EventKind::meter:
        return may_change_meter(event_meters()[size_t(next.value)]);
      default:
        return false;
    }
  }

  // A later position of the bar.
  bool in_bar(int position) const {
    const int64_t time = clock_.time_of(position);
    return position < event_parts * clock_.grid().meter.numerator &&
           (placed_ ? time > clock_.now() : time >= clock_.now());
  }

  bool may_change_meter(const EventMeter& meter) const {
    if (last_.kind == EventKind::special) return options_.time == EventTime::shifts;
    return (last_.kind == EventKind::shift || last_.kind == EventKind::rest) && clock_.at_bar() &&
           meter != clock_.grid().meter;
  }

  std::shared_ptr<const EventVocabulary> words_;
  EventTokenizerOptions options_;
  EventWord last_;
  EventClock clock_;
  bool placed_ = false;  // at a position
  bool begun_ = false, drums_ = false;
  std::set<int> down_;  // pedals, by program
};

}  // namespace

std::unique_ptr<Grammar> event_grammar(std::shared_ptr<const EventVocabulary> words,
                                       const EventTokenizerOptions& options) {
  return std::make_unique<EventGrammar>(std::move(words), options);
}

}  // namespace stretto::music
