#include "examples/groove/groove.h"

#include <algorithm>

namespace stretto::examples {

music::Song empty_groove() {
  return {groove_beat, 120, {{"bass", 0, 33, {}}, {"drums", 9, 0, {}}, {"harmony", 2, 0, {}}}};
}

music::Song with_harmony(const music::Song& song, size_t index) {
  music::Song groove = empty_groove();
  groove.quarters_per_minute = song.quarters_per_minute;
  for (const size_t track : {bass_track, drum_track, harmony_track}) {
    const size_t from = track == harmony_track ? track + index : track;
    if (from >= song.tracks.size()) continue;
    groove.tracks[track].program = song.tracks[from].program;
    groove.tracks[track].notes = song.tracks[from].notes;
  }
  return groove;
}

music::Song with_fullest_harmony(const music::Song& song) {
  size_t fullest = harmony_track;
  for (size_t i = fullest; i < song.tracks.size(); ++i)
    if (song.tracks[i].notes.size() > song.tracks[fullest].notes.size()) fullest = i;
  return with_harmony(song, fullest - harmony_track);
}

int end_of(const music::Song& song) {
  int end = 0;
  for (const music::Track& track : song.tracks)
    for (const music::Note& note : track.notes) end = std::max(end, note.start + note.duration);
  return end;
}

int bars_of(const music::Song& song) { return (end_of(song) + groove_bar - 1) / groove_bar; }

music::Song first_bars(music::Song song, int bars) {
  for (music::Track& track : song.tracks)
    std::erase_if(track.notes, [&](const music::Note& note) {
      return note.start + note.duration >= bars * groove_bar;
    });
  return song;
}

music::Song without_bars(music::Song song, int bars) {
  const int first = bars * groove_bar;
  for (music::Track& track : song.tracks) {
    std::erase_if(track.notes, [&](const music::Note& note) { return note.start < first; });
    for (music::Note& note : track.notes) note.start -= first;
  }
  return song;
}

}  // namespace stretto::examples
