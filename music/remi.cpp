#include "music/remi.h"

#include <algorithm>
#include <cmath>

#include "music/chords.h"

namespace stretto::music {
namespace {

constexpr int64_t steps_per_bar = 16, longest = 16;
constexpr int64_t last_bar = 100'000;  // later words are not decoded

// The grid of a file: sixteenths, shifted so that a bar begins at 0.
class Grid {
 public:
  explicit Grid(const MidiFile& file) : file_(file) {
    for (const TimeSignature& s : file.time_signatures)
      if (s.numerator == s.denominator && (first_ < 0 || s.tick < first_)) first_ = s.tick;
    if (first_ >= 0) shift_ = (steps_per_bar - step(first_) % steps_per_bar) % steps_per_bar;
  }

  int64_t step(int64_t tick) const { return shift_ + file_.grid_step(tick, 4); }
  int64_t duration(const MidiNote& note) const {
    if (file_.division.ticks_per_quarter > 0) return file_.grid_step(note.duration, 4);
    return std::llround(sixteenths(note.start + note.duration) - sixteenths(note.start));
  }

 private:
  double sixteenths(int64_t tick) const {
    const TempoMap& map = file_.tempo_map();
    return 4 * map.beats(map.seconds(double(tick)));
  }

  const MidiFile& file_;
  int64_t first_ = -1, shift_ = 0;
};

// Adds a mark. Of several marks with the same start only the last is kept, and of consecutive marks
// with the same value only the first.
void add_mark(std::vector<RemiSong::Mark>& marks, RemiSong::Mark mark) {
  if (!marks.empty() && marks.back().start == mark.start) marks.pop_back();
  if (marks.empty() || marks.back().value != mark.value) marks.push_back(mark);
}

// Does the same for marks in any order, but keeps consecutive marks with the same value.
void set_in_order(std::vector<RemiSong::Mark>& marks) {
  std::stable_sort(marks.begin(), marks.end(),
                   [](const auto& a, const auto& b) { return a.start < b.start; });
  std::vector<RemiSong::Mark> last;
  for (const RemiSong::Mark& mark : marks) {
    if (!last.empty() && last.back().start == mark.start) last.pop_back();
    last.push_back(mark);
  }
  marks = std::move(last);
}

void add_chords(RemiSong& song) {
  std::vector<ChordNote> notes;
  for (const PianoNote& n : song.notes) notes.push_back({n.start, n.start + n.duration, n.pitch});
  constexpr int64_t beat = steps_per_bar / 4;
  Chord before;
  int64_t start = 0;
  for (const Chord& chord : recognize_chords(notes, beat)) {
    const int value =
        chord.root < 0 ? remi_no_chord : remi_chord_qualities * chord.root + int(chord.quality);
    if (chord != before && start < steps_per_bar * song.bars) song.chords.push_back({start, value});
    before = chord;
    start += beat;
  }
}

}  // namespace

RemiSong quantized(const MidiFile& file, bool chords) {
  const Grid grid(file);
  RemiSong song;
  int64_t last = 0;
  for (const MidiNote& n : file.notes) {
    if (n.channel == drum_channel) continue;
    int pitch = n.pitch;
    while (pitch < remi_low) pitch += 12;
    while (pitch > remi_high) pitch -= 12;
    song.notes.push_back({grid.step(n.start), std::min(longest, grid.duration(n)), pitch,
                          remi_nearest(RemiKind::velocity, n.velocity)});
    last = std::max(last, song.notes.back().start);
  }
  play_on_one_piano(song.notes);
  song.bars = last / steps_per_bar + 1;
  song.tempos.push_back({0, remi_nearest(RemiKind::tempo, 120)});
  for (const TempoChange& change : file.tempo_map().changes()) {
    const int64_t start = change.tick == 0 ? 0 : grid.step(change.tick);
    if (start < steps_per_bar * song.bars)
      add_mark(song.tempos,
               {start, remi_nearest(RemiKind::tempo, 60e6 / change.microseconds_per_quarter)});
  }
  if (chords) add_chords(song);
  return song;
}

std::vector<int64_t> remi_tokens(const RemiSong& song) {
  std::vector<int64_t> tokens;
  auto chord = song.chords.begin(), tempo = song.tempos.begin();
  auto note = song.notes.begin();
  const auto is_at = [](const auto& it, const auto& all, int64_t step) {
    return it != all.end() && it->start == step;
  };
  for (int64_t step = 0; step < steps_per_bar * song.bars; ++step) {
    if (step % steps_per_bar == 0) tokens.push_back(remi_id(RemiKind::bar));
    if (is_at(chord, song.chords, step) || is_at(tempo, song.tempos, step) ||
        is_at(note, song.notes, step))
      tokens.push_back(remi_id(RemiKind::beat, int(step % steps_per_bar)));
    if (is_at(chord, song.chords, step)) tokens.push_back(remi_id(RemiKind::chord, chord++->value));
    if (is_at(tempo, song.tempos, step)) tokens.push_back(remi_id(RemiKind::tempo, tempo++->value));
    for (; is_at(note, song.notes, step); ++note) {
      tokens.push_back(remi_id(RemiKind::pitch, note->pitch));
      tokens.push_back(remi_id(RemiKind::velocity, note->velocity));
      tokens.push_back(remi_id(RemiKind::duration, int(note->duration)));
    }
  }
  tokens.push_back(remi_id(RemiKind::bar));
  tokens.push_back(remi_id(RemiKind::end));
  return tokens;
}

RemiSong remi_song(const std::vector<int64_t>& tokens) {
  RemiSong song;
  int64_t beat = 0;
  int pitch = -1, velocity = -1;  // pitch and velocity of the incomplete note; −1: none yet
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= remi_size) continue;
    const RemiWord& word = remi_words()[size_t(tokens[i])];
    if (word.kind == RemiKind::end || song.bars > last_bar) {
      if (i > 0 && tokens[i - 1] == remi_id(RemiKind::bar)) --song.bars;
      break;
    }
    if (word.kind == RemiKind::bar) ++song.bars, beat = 0;
    if (song.bars == 0) song.bars = 1;
    if (word.kind == RemiKind::beat) beat = word.value;
    const int64_t start = steps_per_bar * (song.bars - 1) + beat;
    if (word.kind == RemiKind::chord) song.chords.push_back({start, word.value});
    if (word.kind == RemiKind::tempo) song.tempos.push_back({start, word.value});
    if (word.kind == RemiKind::duration && velocity >= 0)
      song.notes.push_back({start, word.value, pitch, velocity});
    velocity = word.kind == RemiKind::velocity && pitch >= 0 ? word.value : -1;
    if (word.kind != RemiKind::velocity) pitch = word.kind == RemiKind::pitch ? word.value : -1;
  }
  set_in_order(song.tempos);
  set_in_order(song.chords);
  play_on_one_piano(song.notes);
  return song;
}

Song to_song(const RemiSong& song) {
  constexpr int ticks = 120;  // a sixteenth
  Song midi{4 * ticks, 120, {piano_track(song.notes, ticks)}, {}};
  for (const RemiSong::Mark& tempo : song.tempos) {
    if (tempo.start == 0)
      midi.quarters_per_minute = tempo.value;
    else
      midi.tempos.push_back({int(tempo.start) * ticks, double(tempo.value)});
  }
  return midi;
}

}  // namespace stretto::music
