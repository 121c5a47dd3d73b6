#include "music/event_score.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "music/piano_notes.h"

namespace stretto::music {
namespace {

// The index of the nearest of ascending values, the higher of two equally near ones.
template <class T>
size_t nearest(const std::vector<T>& values, T value) {
  const auto above = std::lower_bound(values.begin(), values.end(), value);
  if (above == values.begin()) return 0;
  const bool below = above == values.end() || value - *std::prev(above) < *above - value;
  return size_t(above - values.begin()) - (below ? 1 : 0);
}

struct TimedMeter {
  int64_t step;
  int index;  // into event_meters()
};

// A note, pedal or bend of an instrument, in steps. The value is a pitch or a bend.
struct Timed {
  int64_t start, duration;
  int value, velocity;
  bool operator==(const Timed&) const = default;
  bool operator<(const Timed& o) const {
    return std::tie(start, duration, value, velocity) <
           std::tie(o.start, o.duration, o.value, o.velocity);
  }
};

struct Instrument {
  int program;
  std::vector<Timed> notes, pedals, bends;
};

// Rounds the times of a file to its grid. If meters count quarters and eighths, a step is an eighth
// of an eighth note, and events under a meter that counts quarters are at even steps.
class FileGrid {
 public:
  FileGrid(const MidiFile& file, bool meters) : file_(file) {
    if (meters) find_meters();
  }

  int64_t per_quarter() const { return per_quarter_; }
  const std::vector<TimedMeter>& meters() const { return meters_; }

  /// The last step that is described: later tempos and meters would take many tokens.
  int64_t last() const { return per_quarter_ * Tokenizer::max_beats; }

  int64_t step(int64_t tick) const {
    return file_.grid_step(std::max<int64_t>(tick, 0), per_quarter_);
  }

  /// Moves a step to the grid of its meter.
  int64_t adjusted(int64_t step) const {
    if (!mixed_ || part(step) == 1 || step % 2 == 0) return step;
    return step + (step % 4 == 1 ? -1 : 1);  // halves to even
  }

  /// The duration of an event in steps, at least 1.
  int64_t duration(int64_t start, int64_t ticks) const {
    const int64_t steps =
        file_.division.ticks_per_quarter > 0 ? step(ticks) : step(start + ticks) - step(start);
    return std::max<int64_t>(1, steps);
  }

  /// The duration in eighths of a beat that has a token, of an event at a step.
  int64_t eighths(int64_t at, int64_t duration) const {
    static const std::vector<double> times(event_times().begin(), event_times().end());
    return event_times()[nearest(times, double(duration) / double(part(at)))];
  }

  /// The steps of an eighth of a beat.
  int64_t part(int64_t step) const {
    const auto after =
        std::upper_bound(meters_.begin(), meters_.end(), step,
                         [](int64_t at, const TimedMeter& meter) { return at < meter.step; });
    return after == meters_.begin() ? 1 : grid(std::prev(after)->index).part();
  }

 private:
  EventGrid grid(int index) const { return {per_quarter_, event_meters()[size_t(index)]}; }

  // Meters without a token are left out. A meter begins with the next bar of the meter before.
  void find_meters() {
    std::vector<std::pair<int64_t, int>> all;  // tick, index
    for (const TimeSignature& signature : file_.time_signatures)
      if (const int meter = event_meter(signature); meter >= 0)
        all.emplace_back(signature.tick, meter);
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    if (all.empty() || all.front().first > 0) all.insert(all.begin(), {0, common_time});
    std::set<int> denominators;
    for (const auto& [tick, index] : all)
      denominators.insert(event_meters()[size_t(index)].denominator);
    per_quarter_ = event_parts * *denominators.rbegin() / 4;
    for (const auto& [tick, index] : all) {
      int64_t at = floor_step(tick);
      if (at > last()) break;
      if (!meters_.empty()) {
        const TimedMeter& before = meters_.back();
        if (index == before.index) continue;
        const int64_t bar = grid(before.index).bar();
        at = before.step + (std::max<int64_t>(at - before.step, 0) + bar - 1) / bar * bar;
        if (at == before.step) meters_.pop_back();
        if (!meters_.empty() && meters_.back().index == index) continue;
      }
      meters_.push_back({at, index});
    }
    denominators.clear();
    for (const TimedMeter& meter : meters_)
      denominators.insert(event_meters()[size_t(meter.index)].denominator);
    mixed_ = denominators.size() > 1;
  }

  int64_t floor_step(int64_t tick) const {
    const int64_t quarter = file_.division.ticks_per_quarter;
    return std::max<int64_t>(0, quarter > 0 ? tick * per_quarter_ / quarter : step(tick));
  }

  const MidiFile& file_;
  int64_t per_quarter_ = event_parts;
  std::vector<TimedMeter> meters_;
  bool mixed_ = false;  // meters count quarters and eighths
};

// Finds the instruments of a file on the grid, by track, channel and program.
class Instruments {
 public:
  Instruments(const MidiFile& file, const FileGrid& grid, const EventTokenizerOptions& options)
      : file_(file), grid_(grid), programs_(options.programs) {
    for (const MidiNote& note : file.notes) {
      if (note.channel == drum_channel && !programs_) continue;
      starts_[{note.track, note.channel}].emplace_back(note.start, note.program);
      of(note.track, note.channel, note.program)
          .notes.push_back({grid.step(note.start), grid.duration(note.start, note.duration),
                            note.pitch, note.velocity});
    }
    if (options.sustain_pedals) find_pedals();
    if (options.pitch_bends) find_bends();
  }

  // With `programs`, instruments of the same program are merged into the first one. Notes at the
  // same time are in the order of the file; those of merged instruments by duration, pitch and
  // velocity.
  std::vector<Instrument> merged() {
    std::vector<Instrument> result;
    std::map<int, size_t> places;  // of programs
    std::set<size_t> several;      // merged ones
    for (auto& [key, instrument] : all_) {
      const auto [place, added] = places.try_emplace(instrument.program, result.size());
      if (added) {
        result.push_back(std::move(instrument));
        continue;
      }
      several.insert(place->second);
      Instrument& first = result[place->second];
      for (auto part : {&Instrument::notes, &Instrument::pedals, &Instrument::bends})
        (first.*part)
            .insert((first.*part).end(), (instrument.*part).begin(), (instrument.*part).end());
    }
    for (const size_t i : several) std::sort(result[i].notes.begin(), result[i].notes.end());
    for (Instrument& instrument : result) {
      std::sort(instrument.pedals.begin(), instrument.pedals.end());
      std::sort(instrument.bends.begin(), instrument.bends.end());
    }
    return result;
  }

 private:
  Instrument& of(int track, int channel, int program) {
    if (channel == drum_channel) program = drums_program;
    if (!programs_) track = channel = program = 0;
    return all_.try_emplace({track, channel, program}, Instrument{program, {}, {}, {}})
        .first->second;
  }

  // The instrument of the last note of a track and channel up to a tick, else of its first note.
  Instrument* at(int track, int channel, int64_t tick) {
    const auto found = starts_.find({track, channel});
    if (found == starts_.end()) return nullptr;
    const auto& starts = found->second;
    const auto after = std::upper_bound(starts.begin(), starts.end(), std::pair(tick, 127));
    return &of(track, channel, (after == starts.begin() ? after : std::prev(after))->second);
  }

  // A pedal that is not released is left out, and so is one of a track and channel without notes.
  // Its instrument is that of the last note before the release, because a new one often begins
  // there.
  void find_pedals() {
    std::map<std::pair<int, int>, int64_t> down;  // since a tick
    for (const ControlChange& c : file_.controls) {
      const std::pair key(c.track, c.channel);
      if (c.controller != sustain_pedal) continue;
      if (c.value >= 64) down.try_emplace(key, c.tick);
      if (c.value >= 64 || !down.contains(key)) continue;
      const int64_t start = down.extract(key).mapped();
      if (Instrument* instrument = at(c.track, c.channel, c.tick - 1))
        instrument->pedals.push_back({grid_.step(start), grid_.duration(start, c.tick - start)});
    }
  }

  void find_bends() {
    for (const PitchBend& bend : file_.pitch_bends)
      if (Instrument* instrument = at(bend.track, bend.channel, bend.tick))
        instrument->bends.push_back({grid_.step(bend.tick), 0, bend.value});
  }

  const MidiFile& file_;
  const FileGrid& grid_;
  bool programs_;
  std::map<std::tuple<int, int, int>, Instrument> all_;
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int>>> starts_;  // tick, program
};

// The tempos of a file. The first one is at step 0.
std::vector<ScoreEvent> tempos_of(const MidiFile& file, const FileGrid& grid) {
  static const auto microseconds = [] {
    std::vector<double> all;  // ascending
    for (int i = n_event_tempos - 1; i >= 0; --i) all.push_back(60e6 / event_tempo(i));
    return all;
  }();
  const auto tempo = [&](int64_t step, int value) {
    const int index = n_event_tempos - 1 - int(nearest(microseconds, double(value)));
    return ScoreEvent{step, EventKind::tempo, index};
  };
  std::vector<ScoreEvent> tempos;
  for (const TempoChange& change : file.tempo_map().changes()) {
    const int64_t step = grid.adjusted(grid.step(change.tick));
    if (step > grid.last()) break;
    if (!tempos.empty() && tempos.back().step == step) tempos.pop_back();
    tempos.push_back(tempo(step, change.microseconds_per_quarter));
  }
  if (tempos.empty() || tempos.front().step != 0) tempos.insert(tempos.begin(), tempo(0, 500000));
  return tempos;
}

void add_notes(const Instrument& instrument, const FileGrid& grid,
               std::vector<ScoreEvent>& events) {
  static const auto velocities = [] {
    std::vector<int> values;
    for (int i = 0; i < n_event_velocities; ++i) values.push_back(event_velocity(i));
    return values;
  }();
  const bool drum = instrument.program == drums_program;
  for (const Timed& note : instrument.notes) {
    if (note.value < (drum ? lowest_event_drum : lowest_event_pitch)) continue;
    if (note.value > (drum ? highest_event_drum : highest_event_pitch)) continue;
    const int64_t start = grid.adjusted(note.start);
    events.push_back({start, drum ? EventKind::drum : EventKind::pitch, note.value,
                      instrument.program, velocities[nearest(velocities, note.velocity)],
                      grid.eighths(start, note.duration)});
  }
}

// Pedals that overlap or follow each other without a gap are one.
void add_pedals(const Instrument& instrument, const FileGrid& grid, bool durations,
                std::vector<ScoreEvent>& events) {
  std::vector<std::pair<int64_t, int64_t>> pedals;  // start, end
  for (const Timed& pedal : instrument.pedals) {
    const int64_t start = grid.adjusted(pedal.start);
    int64_t end = durations ? start + pedal.duration : grid.adjusted(pedal.start + pedal.duration);
    if (end <= start) end = start + grid.part(start);
    if (start > grid.last()) break;
    if (!pedals.empty() && pedals.back().second >= start)
      pedals.back().second = std::max(pedals.back().second, end);
    else
      pedals.emplace_back(start, end);
  }
  for (const auto& [start, end] : pedals) {
    events.push_back(
        {start, EventKind::pedal, instrument.program, 0, 0, grid.eighths(start, end - start)});
    if (!durations)
      events.push_back({std::min(end, grid.last()), EventKind::pedal_off, instrument.program});
  }
}

// Of the bends at one step, the largest one is written.
void add_bends(const Instrument& instrument, const FileGrid& grid,
               std::vector<ScoreEvent>& events) {
  const size_t before = events.size();
  for (const Timed& bend : instrument.bends) {
    const int value = event_bends()[nearest(event_bends(), bend.value)];
    const int64_t step = grid.adjusted(bend.start);
    if (step > grid.last()) break;
    if (events.size() == before || events.back().step != step)
      events.push_back({step, EventKind::bend, value, instrument.program});
    else if (std::abs(value) > std::abs(events.back().value))
      events.back().value = value;
  }
}

}  // namespace

EventScore event_score(const MidiFile& file, const EventTokenizerOptions& options) {
  const FileGrid grid(file, options.time_signatures);
  std::vector<ScoreEvent> events;
  for (const TimedMeter& meter : grid.meters())
    events.push_back({meter.step, EventKind::meter, meter.index});
  if (options.tempos) {
    const std::vector<ScoreEvent> tempos = tempos_of(file, grid);
    events.insert(events.end(), tempos.begin(), tempos.end());
  }
  for (const Instrument& instrument : Instruments(file, grid, options).merged()) {
    add_pedals(instrument, grid, options.sustain_pedal_duration, events);
    add_bends(instrument, grid, events);
    add_notes(instrument, grid, events);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const ScoreEvent& a, const ScoreEvent& b) { return a.step < b.step; });
  return {grid.per_quarter(), std::move(events)};
}

}  // namespace stretto::music
