#include "music/tempo_map.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace stretto::music {
namespace {

constexpr int default_tempo = 500000;  // 120 quarter notes a minute

void require(bool good, const char* what, int64_t value, const char* expected) {
  check(good, "tempo_map", what, " is ", value, "; expected ", expected);
}

double seconds_per_frame(int frames_per_second) {
  return frames_per_second == 29 ? 1001.0 / 30000 : 1.0 / frames_per_second;
}

void validate(const MidiDivision& division) {
  if (division.ticks_per_quarter != 0) {
    require(division.ticks_per_quarter > 0 && division.ticks_per_quarter <= 0x7FFF,
            "ticks_per_quarter", division.ticks_per_quarter, "0 (SMPTE) to 32767");
    return;
  }
  require(division.frames_per_second >= 1 && division.frames_per_second <= 128, "frames_per_second",
          division.frames_per_second, "1 to 128");
  require(division.ticks_per_frame >= 1 && division.ticks_per_frame <= 255, "ticks_per_frame",
          division.ticks_per_frame, "1 to 255");
}

}  // namespace

TempoMap::TempoMap(const MidiDivision& division, std::vector<TempoChange> changes)
    : changes_(std::move(changes)) {
  validate(division);
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const TempoChange& a, const TempoChange& b) { return a.tick < b.tick; });
  const auto extend = [&](double start, int microseconds_per_quarter) {
    const double beat = microseconds_per_quarter / 1e6;
    const double per_tick =
        division.ticks_per_quarter != 0
            ? beat / division.ticks_per_quarter
            : seconds_per_frame(division.frames_per_second) / division.ticks_per_frame;
    Segment next{start, 0, 0, per_tick, beat};
    if (!segments_.empty()) {
      const Segment& last = segments_.back();
      const double elapsed = (start - last.tick) * last.seconds_per_tick;
      next.seconds = last.seconds + elapsed;
      next.beats = last.beats + elapsed / last.seconds_per_beat;
    }
    segments_.push_back(next);
  };
  extend(0, default_tempo);
  for (const TempoChange& change : changes_) {
    require(change.tick >= 0, "the tick of a change", change.tick, "0 or more");
    require(change.microseconds_per_quarter >= 1 && change.microseconds_per_quarter <= 0xFFFFFF,
            "microseconds_per_quarter", change.microseconds_per_quarter, "1 to 16777215");
    extend(double(change.tick), change.microseconds_per_quarter);
  }
}

const TempoMap::Segment& TempoMap::at(double value, double Segment::*start) const {
  const auto after =
      std::upper_bound(segments_.begin() + 1, segments_.end(), value,
                       [&](double left, const Segment& right) { return left < right.*start; });
  return *(after - 1);
}

double TempoMap::seconds(double tick) const {
  const Segment& segment = at(tick, &Segment::tick);
  return segment.seconds + (tick - segment.tick) * segment.seconds_per_tick;
}

double TempoMap::tick(double seconds) const {
  const Segment& segment = at(seconds, &Segment::seconds);
  return segment.tick + (seconds - segment.seconds) / segment.seconds_per_tick;
}

double TempoMap::beats(double seconds) const {
  const Segment& segment = at(seconds, &Segment::seconds);
  return segment.beats + (seconds - segment.seconds) / segment.seconds_per_beat;
}

double TempoMap::quarters_per_minute(double tick) const {
  return 60 / at(tick, &Segment::tick).seconds_per_beat;
}

}  // namespace stretto::music
