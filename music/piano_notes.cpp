#include "music/piano_notes.h"

#include <algorithm>
#include <map>

namespace stretto::music {

void play_on_one_piano(std::vector<PianoNote>& notes) {
  std::sort(notes.begin(), notes.end(), [](const PianoNote& a, const PianoNote& b) {
    return a.start != b.start ? a.start < b.start : a.pitch > b.pitch;
  });
  std::vector<PianoNote> played;
  std::map<int, size_t> last;  // by pitch, into `played`
  for (const PianoNote& note : notes) {
    const auto [it, first] = last.try_emplace(note.pitch, played.size());
    if (!first) {
      PianoNote& before = played[it->second];
      if (before.start == note.start) {
        before.duration = std::max(before.duration, note.duration);
        before.velocity = std::max(before.velocity, note.velocity);
        continue;
      }
      before.duration = std::min(before.duration, note.start - before.start);
      it->second = played.size();
    }
    played.push_back(note);
  }
  notes = std::move(played);
}

Track piano_track(const std::vector<PianoNote>& notes, int ticks) {
  Track track{"Piano", 0, 0, {}};
  for (const PianoNote& n : notes) {
    const int duration = n.duration > 0 ? int(n.duration) * ticks : (ticks - 1) / 2;
    track.notes.push_back(
        {int(n.start) * ticks, duration, n.pitch, std::clamp(n.velocity, 1, 127)});
  }
  return track;
}

}  // namespace stretto::music
