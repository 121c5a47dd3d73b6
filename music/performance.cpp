#include "music/performance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "core/error.h"

namespace stretto::music {
namespace {

constexpr int sustain = sustain_pedal, sostenuto = 66, hold = 69;  // controllers
constexpr int all_sound_off = 120, reset_controllers = 121;
constexpr int longest_shift = 100;
constexpr int64_t last_time = 20'000'000;  // later events are not decoded: 55 hours

bool is_shift(int64_t token) { return token >= performance_shift && token < performance_velocity; }

int bin_of(int velocity) { return (velocity - 1) / 4; }
int velocity_of(int bin) { return 4 * bin + 2; }

void add_shift(std::vector<int64_t>& tokens, int64_t time) {
  for (; time > longest_shift; time -= longest_shift)
    tokens.push_back(performance_shift + longest_shift - 1);
  if (time > 0) tokens.push_back(performance_shift + time - 1);
}

// Computes where notes held by pedals end: at the latest a minute after the last key, when no
// string is audible any more. A pedal may be released, or the file end, hours later.
class Pedals {
 public:
  explicit Pedals(const MidiFile& file) : file_(file) {
    for (const MidiTrack& track : file.tracks) last_ = std::max(last_, track.end);
    for (const MidiNote& note : file.notes)
      if (note.channel != drum_channel)
        longest_ = std::max(longest_, note.start_seconds + note.seconds + 60);
    std::vector<ControlChange> controls = file.controls;
    std::stable_sort(controls.begin(), controls.end(),
                     [](const auto& a, const auto& b) { return a.tick < b.tick; });
    std::array<std::map<int, bool>, 16> down;  // by channel: the state of each pedal
    for (const ControlChange& c : controls) {
      Channel& channel = channels_[size_t(c.channel)];
      if (c.controller == all_sound_off) channel.silences.push_back(c.tick);
      std::map<int, bool>& pedals = down[size_t(c.channel)];
      for (const int pedal : {sustain, sostenuto, hold})
        if (c.controller == pedal || c.controller == reset_controllers)
          pedals[pedal] = c.controller == pedal && c.value >= 64;
      add_move(channel.sustained, c.tick, pedals[sustain] || pedals[hold]);
      add_move(channel.sostenuto, c.tick, pedals[sostenuto]);
    }
  }

  double end_seconds(const MidiNote& note) const {
    const Channel& channel = channels_[size_t(note.channel)];
    const int64_t key_up = note.start + note.duration;
    // The sostenuto pedal holds only the keys that are down when it is pressed.
    int64_t end = std::max(key_up, release(channel.sostenuto, key_up - 1, note.start));
    end = std::max(end, release(channel.sustained, end, -1));
    if (end == key_up) return note.start_seconds + note.seconds;
    const auto silence = std::lower_bound(channel.silences.begin(), channel.silences.end(), key_up);
    if (silence != channel.silences.end()) end = std::min(end, *silence);
    return std::min(longest_, file_.tempo_map().seconds(double(end)));
  }

 private:
  struct Move {
    int64_t tick;
    bool down;
  };
  struct Channel {
    std::vector<Move> sustained,
        sostenuto;                  // alternately down and up; sustained: by sustain or hold
    std::vector<int64_t> silences;  // ticks of all sound off
  };

  static void add_move(std::vector<Move>& moves, int64_t tick, bool down) {
    if (down != (!moves.empty() && moves.back().down)) moves.push_back({tick, down});
  }

  // The tick at which a pedal that is down at `tick`, and was pressed at `since` or later, is
  // released; −1 if it is not down.
  int64_t release(const std::vector<Move>& moves, int64_t tick, int64_t since) const {
    const auto next = std::upper_bound(moves.begin(), moves.end(), tick,
                                       [](int64_t at, const Move& move) { return at < move.tick; });
    if (next == moves.begin() || !(next - 1)->down || (next - 1)->tick < since) return -1;
    return next == moves.end() ? last_ : next->tick;
  }

  const MidiFile& file_;
  std::array<Channel, 16> channels_;
  int64_t last_ = 0;    // tick of the last event
  double longest_ = 0;  // latest end of a note, in seconds
};

}  // namespace

std::vector<PianoNote> performed(const MidiFile& file, bool pedal) {
  const Pedals held(file);
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

std::vector<int64_t> performance_tokens(const std::vector<PianoNote>& notes) {
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
  std::vector<int64_t> tokens;
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

std::vector<PianoNote> performance_notes(const std::vector<int64_t>& tokens) {
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
  for (const int64_t token : tokens) {
    if (token == performance_end || now > last_time) break;
    if (token < 0 || token >= performance_end) continue;
    if (is_shift(token)) {
      now += token - performance_shift + 1;
    } else if (token >= performance_velocity) {
      velocity = velocity_of(int(token - performance_velocity));
    } else if (token >= performance_off) {
      stop(sounding[size_t(token - performance_off)]);
    } else {
      stop(sounding[size_t(token)]);
      sounding[size_t(token)] = int64_t(notes.size());
      notes.push_back({now, 1, int(token), velocity});
    }
  }
  for (int64_t& index : sounding) stop(index);
  play_on_one_piano(notes);
  return notes;
}

std::vector<int64_t> stretched(const std::vector<int64_t>& tokens, double factor) {
  check(factor > 0 && factor <= 100, "stretched", "factor ", factor, "; expected above 0, to 100");
  std::vector<int64_t> result;
  int64_t now = 0, told = 0;  // time in `tokens`; time written to `result` so far
  for (const int64_t token : tokens) {
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
