#include "examples/groove/groove_tokens.h"

#include <algorithm>
#include <map>
#include <queue>
#include <stdexcept>
#include <string>
#include <tuple>

namespace stretto::examples {
namespace {

constexpr int64_t last_tick = (int64_t{1} << 28) - 1;  // the last tick of a MIDI file
constexpr int note_velocity = 80;

struct Timed {
  int64_t time;
  int64_t token;
};

std::vector<Timed> events_of(const music::Song& groove) {
  using Key = std::tuple<int, int, int, int, int>;  // time, pitch, duration, velocity, track
  std::vector<Key> notes;
  for (int track = 0; track < 3; ++track)
    for (const music::Note& note : groove.tracks[size_t(track)].notes) {
      const bool good = note.start >= 0 && note.duration >= 0 && note.pitch >= 0 &&
                        note.pitch <= 127 && int64_t{note.start} + note.duration <= last_tick;
      if (!good)
        throw std::invalid_argument(
            std::string("a note of the ") + groove_track_names[size_t(track)] + " has start " +
            std::to_string(note.start) + ", duration " + std::to_string(note.duration) +
            ", pitch " + std::to_string(note.pitch) +
            "; expected times from 0, an end before tick 2^28 and a pitch of 0 to 127");
      notes.emplace_back(note.start, note.pitch, note.duration, note.velocity, track);
    }
  std::sort(notes.begin(), notes.end());
  std::vector<Timed> events;
  for (const auto& [start, pitch, duration, velocity, track] : notes) {
    events.push_back({start, note_on_token(track, pitch)});
    events.push_back({start + duration, note_off_token(track, pitch)});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Timed& a, const Timed& b) { return a.time < b.time; });
  return events;
}

}  // namespace

GrooveEvent groove_event(int64_t token) {
  using Kind = GrooveEvent::Kind;
  if (token < 0 || token >= groove_vocabulary)
    throw std::invalid_argument("token " + std::to_string(token) + " is not in 0 .. 793");
  const int t = int(token);
  if (t < 384) return {Kind::note_on, t / 128, t % 128};
  if (t < 768) return {Kind::note_off, (t - 384) / 128, t % 128};
  if (t < groove_end) return {Kind::time_shift, (t - 767) / 12, (t - 767) % 12};
  return {t == groove_end ? Kind::end : Kind::start};
}

std::vector<int64_t> to_tokens(const music::Song& groove, int64_t most) {
  std::vector<int64_t> tokens;
  const auto add = [&](int64_t token) {
    if (int64_t(tokens.size()) < most) tokens.push_back(token);
    return int64_t(tokens.size()) < most;
  };
  int64_t time = 0;
  for (const Timed& event : events_of(groove)) {
    int64_t beats = event.time / groove_beat - time / groove_beat;
    for (; beats >= 2; beats -= 2)
      if (!add(time_shift_token(2, 0))) return tokens;
    const int tick = int(event.time % groove_beat);
    if (beats > 0 || tick > 0) add(time_shift_token(int(beats), tick));
    if (!add(event.token)) return tokens;
    time = event.time;
  }
  return tokens;
}

music::Song to_groove(const std::vector<int64_t>& tokens) {
  using Kind = GrooveEvent::Kind;
  music::Song groove = empty_groove();
  std::map<std::pair<int, int>, std::queue<int64_t>> sounding;  // starts by track and pitch
  int64_t time = 0;
  for (const int64_t token : tokens) {
    const GrooveEvent event = groove_event(token);
    if (event.kind == Kind::end) break;
    if (event.kind == Kind::time_shift) time = event.from(time);
    if (event.kind != Kind::note_on && event.kind != Kind::note_off) continue;
    if (time >= last_tick)
      throw std::invalid_argument("the tokens exceed tick 2^28; a groove must end before it");
    std::queue<int64_t>& since = sounding[{event.first, event.second}];
    if (event.kind == Kind::note_on) {
      since.push(time);
    } else if (!since.empty()) {
      const int start = int(since.front());
      const int duration = std::max(1, int(time) - start);
      groove.tracks[size_t(event.first)].notes.push_back(
          {start, duration, event.second, note_velocity});
      since.pop();
    }
  }
  for (music::Track& track : groove.tracks)
    std::stable_sort(track.notes.begin(), track.notes.end(),
                     [](const music::Note& a, const music::Note& b) {
                       return std::tie(a.start, a.pitch) < std::tie(b.start, b.pitch);
                     });
  return groove;
}

}  // namespace stretto::examples
