#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "music/chords.h"
#include "music/remi.h"

namespace stretto::music {
namespace {

std::vector<RemiWord> make_words() {
  std::vector<RemiWord> words{{"Bar_None", RemiKind::bar, 0}, {"EOS_None", RemiKind::end, 0}};
  const auto add = [&](const std::string& name, RemiKind kind, int value) {
    words.push_back({name, kind, value});
  };
  for (int i = 0; i < 16; ++i) add("Beat_" + std::to_string(i), RemiKind::beat, i);
  const std::array<const char*, 12> roots{"C",  "C#", "D",  "D#", "E",  "F",
                                          "F#", "G",  "G#", "A",  "A#", "B"};
  for (int root = 0; root < 12; ++root)
    for (int q = 0; q < remi_chord_qualities; ++q)
      add(std::string("Chord_") + roots[size_t(root)] + "_" + chord_quality_names[size_t(q)],
          RemiKind::chord, remi_chord_qualities * root + q);
  add("Chord_N_N", RemiKind::chord, remi_no_chord);
  for (int i = 0; i <= 16; ++i)
    add("Note_Duration_" + std::to_string(120 * i), RemiKind::duration, i);
  for (int p = remi_low; p <= remi_high; ++p)
    add("Note_Pitch_" + std::to_string(p), RemiKind::pitch, p);
  for (int v = 40; v <= 86; v += 2)
    add("Note_Velocity_" + std::to_string(v), RemiKind::velocity, v);
  const std::set<int> unused{152, 164, 173, 179, 185, 191, 197, 203, 209, 212, 218};
  for (int t = 32; t <= 224; t += 3)
    if (!unused.contains(t)) add("Tempo_" + std::to_string(t), RemiKind::tempo, t);
  std::sort(words.begin(), words.end(),
            [](const RemiWord& a, const RemiWord& b) { return a.name < b.name; });
  return words;
}

const std::map<std::pair<RemiKind, int>, int64_t>& ids() {
  static const auto all = [] {
    std::map<std::pair<RemiKind, int>, int64_t> map;
    for (const RemiWord& word : remi_words())
      map.emplace(std::pair(word.kind, word.value), map.size());
    return map;
  }();
  return all;
}

}  // namespace

const std::vector<RemiWord>& remi_words() {
  static const std::vector<RemiWord> words = make_words();
  return words;
}

int64_t remi_id(RemiKind kind, int value) { return ids().at({kind, value}); }

int remi_nearest(RemiKind kind, double value) {
  const int floor = int(std::floor(std::clamp(value, 0.0, 1000.0)));
  const auto above = ids().upper_bound({kind, floor});
  const auto of_kind = [&](auto it) { return it != ids().end() && it->first.first == kind; };
  if (above == ids().begin() || !of_kind(std::prev(above))) return above->first.second;
  const int low = std::prev(above)->first.second;
  if (!of_kind(above)) return low;
  const int high = above->first.second;
  return value - low <= high - value ? low : high;
}

}  // namespace stretto::music
