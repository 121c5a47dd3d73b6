#include "nn/music/performance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "core/error.h"

namespace stretto::music {
namespace {

constexpr int sustain = 64, longest_shift = 100;
constexpr int64_t last_time = 20'000'000;  // later events are not decoded: 55 hours

bool is_shift(int token) { return token >= performance_shift && token < performance_velocity; }

int bin_of(int velocity) { return (velocity - 1) / 4; }
int velocity_of(int bin) { return 4 * bin + 2; }

void add_shift(std::vector<int>& tokens, int64_t time) {
  for (; time > longest_shift; time -= longest_shift)
    tokens.push_back(performance_shift + longest_shift - 1);
  if (time > 0) tokens.push_back(performance_shift + int(time) - 1);
}

// Computes where notes held by the pedal end: at the latest a minute after the last key, when no
// string is audible any more. A pedal may be released, or the file end, hours later.
class Pedal {
 public:
  explicit Pedal(const MidiFile& file) : file_(file) {
    for (const ControlChange& c : file.controls)
      if (c.controller == sustain) moves_[size_t(c.channel)].push_back(c);
    for (auto& moves : moves_) {
      std::stable_sort(moves.begin(), moves.end(),
                       [](const auto& a, const auto& b) { return a.tick < b.tick; });
      // Only changes between up and down are needed: the next one of those is the release.
      const auto same = [](const auto& a, const auto& b) {
        return (a.value < 64) == (b.value < 64);
      };
      moves.erase(std::unique(moves.begin(), moves.end(), same), moves.end());
    }
    for (const MidiTrack& track : file.tracks) last_ = std::max(last_, track.end);
    for (const MidiNote& note : file.notes)
      if (note.channel != drum_channel)
        longest_ = std::max(longest_, note.start_seconds + note.seconds + 60);
  }

  double end_seconds(const MidiNote& note) const {
    const int64_t end = note.start + note.duration;
    const auto& moves = moves_[size_t(note.channel)];
    auto next = std::upper_bound(moves.begin(), moves.end(), end,
                                 [](int64_t tick, const auto& move) { return tick < move.tick; });
    if (next == moves.begin() || (next - 1)->value < 64) return note.start_seconds + note.seconds;
    const int64_t released = next == moves.end() ? last_ : next->tick;
    return std::min(longest_, file_.tempo_map().seconds(double(released)));
  }

 private:
  const MidiFile& file_;
  std::array<std::vector<ControlChange>, 16> moves_;  // by channel
  int64_t last_ = 0;                                  // tick of the last event
  double longest_ = 0;                                // latest end of a note, in seconds
};

}  // namespace

std::vector<PianoNote> performed(const MidiFile& file, bool pedal) {
  const Pedal held(file);
  std::vector<PianoNote> notes;
  for (const MidiNote& n : file.notes) {
    if (n.channel == drum_channel) continue;
    const double end = pedal ? held.end_seconds(n) : n.start_seconds + n.seconds;
    const int64_t start = std::llround(100 * n.start_seconds);
    notes.push_back({start, std::max<int64_t>(1, std::llround(100 * end) - start), n.pitch,
                     velocity_of(bin_of(n.velocity))});
  }
  play_on_one_piano(notes);
  const int64_t first = notes.empty() ? 0 : notes.front().start;
  for (PianoNote& note : notes) note.start -= first;
  return notes;
}

std::vector<int> performance_tokens(const std::vector<PianoNote>& notes) {
  struct Event {
    int64_t time;
    bool on;
    int pitch, velocity;
  };
  std::vector<Event> events;
  for (const PianoNote& n : notes) {
    events.push_back({n.start, true, n.pitch, n.velocity});
    events.push_back({n.start + n.duration, false, n.pitch, 0});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.on, a.pitch) < std::tie(b.time, b.on, b.pitch);
  });
  std::vector<int> tokens;
  int64_t now = 0;
  int bin = -1;
  for (const Event& event : events) {
    add_shift(tokens, event.time - now);
    now = event.time;
    if (event.on && bin_of(event.velocity) != bin) {
      bin = bin_of(event.velocity);
      tokens.push_back(performance_velocity + bin);
    }
    tokens.push_back((event.on ? performance_on : performance_off) + event.pitch);
  }
  tokens.push_back(performance_end);
  return tokens;
}

std::vector<PianoNote> performance_notes(const std::vector<int>& tokens) {
  std::vector<PianoNote> notes;
  std::array<int64_t, 128> sounding;  // indices into `notes`
  sounding.fill(-1);
  int64_t now = 0;
  int velocity = velocity_of(15);
  const auto stop = [&](int64_t& index) {
    if (index < 0) return;
    PianoNote& note = notes[size_t(index)];
    note.duration = std::max<int64_t>(1, now - note.start);
    index = -1;
  };
  for (const int token : tokens) {
    if (token == performance_end || now > last_time) break;
    if (token < 0 || token >= performance_end) continue;
    if (is_shift(token)) {
      now += token - performance_shift + 1;
    } else if (token >= performance_velocity) {
      velocity = velocity_of(token - performance_velocity);
    } else if (token >= performance_off) {
      stop(sounding[size_t(token - performance_off)]);
    } else {
      stop(sounding[size_t(token)]);
      sounding[size_t(token)] = int64_t(notes.size());
      notes.push_back({now, 1, token, velocity});
    }
  }
  for (int64_t& index : sounding) stop(index);
  play_on_one_piano(notes);
  return notes;
}

std::vector<int> stretched(const std::vector<int>& tokens, double factor) {
  check(factor > 0 && factor <= 100, "stretched", "factor ", factor, "; expected above 0, to 100");
  std::vector<int> result;
  int64_t now = 0, told = 0;  // time in `tokens`; time written to `result` so far
  for (const int token : tokens) {
    if (is_shift(token)) {
      now += token - performance_shift + 1;
      continue;
    }
    const int64_t moved = std::llround(factor * double(now));
    add_shift(result, moved - told);
    told = moved;
    result.push_back(token);
  }
  add_shift(result, std::llround(factor * double(now)) - told);
  return result;
}

Song to_song(const std::vector<PianoNote>& notes) {
  return {500, 120, {piano_track(notes, 10)}, {}};  // 120 beats a minute of 500 ticks
}

}  // namespace stretto::music
