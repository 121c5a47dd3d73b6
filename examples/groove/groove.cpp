#include "examples/groove/groove.h"

#include <algorithm>

namespace stretto::examples {
namespace {

void drop_bars(std::vector<music::Note>& notes, int bars) {
  const int first = bars * groove_bar;
  std::erase_if(notes, [&](const music::Note& note) { return note.start < first; });
  for (music::Note& note : notes) note.start -= first;
}

}  // namespace

Groove with_harmony(const GrooveSource& song, size_t index) {
  Groove groove{.tracks = {song.bass.notes, song.drums.notes, {}},
                .programs = {song.bass.program, song.drums.program, 0},
                .quarters_per_minute = song.quarters_per_minute};
  if (song.harmony.empty()) return groove;
  groove.tracks[harmony_track] = song.harmony.at(index).notes;
  groove.programs[harmony_track] = song.harmony.at(index).program;
  return groove;
}

Groove with_fullest_harmony(const GrooveSource& song) {
  const auto fullest = std::max_element(
      song.harmony.begin(), song.harmony.end(),
      [](const auto& a, const auto& b) { return a.notes.size() < b.notes.size(); });
  return with_harmony(song, size_t(fullest - song.harmony.begin()));
}

int end_of(const Groove& groove) {
  int end = 0;
  for (const std::vector<music::Note>& notes : groove.tracks)
    for (const music::Note& note : notes) end = std::max(end, note.start + note.duration);
  return end;
}

int bars_of(const Groove& groove) { return (end_of(groove) + groove_bar - 1) / groove_bar; }

Groove first_bars(const Groove& groove, int bars) {
  Groove first = groove;
  for (std::vector<music::Note>& notes : first.tracks)
    std::erase_if(notes, [&](const music::Note& note) {
      return note.start + note.duration >= bars * groove_bar;
    });
  return first;
}

Groove without_bars(Groove groove, int bars) {
  for (std::vector<music::Note>& notes : groove.tracks) drop_bars(notes, bars);
  return groove;
}

GrooveSource without_bars(GrooveSource song, int bars) {
  drop_bars(song.bass.notes, bars);
  drop_bars(song.drums.notes, bars);
  for (GroovePart& part : song.harmony) drop_bars(part.notes, bars);
  return song;
}

music::Song to_song(const Groove& groove) {
  constexpr std::array<int, 3> channels = {0, 9, 2};
  music::Song song{groove_beat, groove.quarters_per_minute, {}};
  for (size_t i = 0; i < 3; ++i)
    song.tracks.push_back(
        {groove_track_names[i], channels[i], groove.programs[i], groove.tracks[i]});
  return song;
}

}  // namespace stretto::examples
