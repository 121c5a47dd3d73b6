#include "examples/piano/notes.h"

#include <algorithm>
#include <map>

#include "examples/common/settings.h"

namespace stretto::examples {

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

void check_piano_file(const MidiFile& file, const std::string& path) {
  require(file.format != 2, path + ": is of format 2, whose tracks are separate pieces");
  double seconds = -1;
  for (const MidiNote& note : file.notes)
    if (note.channel != drum_channel)
      seconds = std::max(seconds, note.start_seconds + note.seconds);
  require(seconds >= 0, path + ": has no notes" + (file.notes.empty() ? "" : " except drums"));
  require(seconds <= 6 * 3600 && file.tempo_map().beats(seconds) <= 40'000,
          path + ": lasts more than six hours or 40000 beats");
}

}  // namespace stretto::examples
