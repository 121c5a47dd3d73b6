#include "examples/groove/groove_generator.h"

#include <algorithm>
#include <array>
#include <string>

#include "examples/common/portable_random.h"

namespace stretto::examples {
namespace {

struct Chord {
  int root;                    // pitch class
  std::vector<int> intervals;  // above the root; [1] is the third, [2] the fifth
};

using Chart = std::vector<Chord>;  // a chord for every bar

/// The chart's phrases of four bars: degrees of the scale, 0 … 6.
using Phrase = std::array<int, 4>;
constexpr std::array<Phrase, 6> major_phrases = {
    {{0, 4, 5, 3}, {0, 5, 3, 4}, {1, 4, 0, 0}, {0, 3, 0, 4}, {3, 4, 2, 5}, {0, 2, 3, 4}}};
constexpr std::array<Phrase, 5> minor_phrases = {
    {{0, 5, 2, 6}, {0, 3, 0, 4}, {0, 6, 5, 4}, {3, 0, 4, 0}, {0, 3, 6, 2}}};

Chord chord_on(int tonic, bool minor, int degree, bool sevenths) {
  constexpr std::array<int, 7> major_scale = {0, 2, 4, 5, 7, 9, 11};
  constexpr std::array<int, 7> minor_scale = {0, 2, 3, 5, 7, 8, 10};
  const std::array<int, 7>& scale = minor ? minor_scale : major_scale;
  const auto above = [&](int steps) {
    const int to = degree + steps;
    const int interval = scale[size_t(to % 7)] + 12 * (to / 7);
    return interval - scale[size_t(degree)];
  };
  Chord chord{(tonic + scale[size_t(degree)]) % 12, {0, above(2), above(4)}};
  if (minor && degree == 4) chord.intervals[1] = 4;  // the dominant is major
  if (sevenths) chord.intervals.push_back(above(6));
  return chord;
}

Chart compose(PortableRandom& random) {
  const int tonic = random.below(12);
  const bool minor = random.percent(40), sevenths = random.percent(40);
  const auto phrase = [&] {
    return minor ? minor_phrases[size_t(random.below(int(minor_phrases.size())))]
                 : major_phrases[size_t(random.below(int(major_phrases.size())))];
  };
  const Phrase a = phrase(), b = phrase();
  constexpr std::array<const char*, 6> forms = {"A", "AA", "AB", "AAB", "AABA", "AABABA"};
  const char* form = forms[size_t(random.weighted({2, 2, 3, 2, 4, 1}))];
  Chart chart;
  for (const char* part = form; *part != 0; ++part)
    for (const int degree : *part == 'A' ? a : b)
      chart.push_back(chord_on(tonic, minor, degree, sevenths));
  return chart;
}

const std::string& pick(PortableRandom& random, const Patterns& patterns) {
  return patterns[size_t(random.below(int(patterns.size())))];
}

/// Calls strike(character, start, duration, number) for the notes of a pattern in bar `bar`.
template <class Strike>
void play(const std::string& pattern, int bar, const Strike& strike) {
  const int steps = int(pattern.size()), step = groove_bar / steps;
  for (int i = 0, number = 0; i < steps; ++i) {
    const char kind = pattern[size_t(i)];
    if (kind == '.' || kind == '-') continue;
    int held = 1;
    while (i + held < steps && pattern[size_t(i + held)] == '-') ++held;
    strike(kind, bar * groove_bar + i * step, held * step - 1, number++);
  }
}

/// A style: the choices of a song within its family.
struct Style {
  const GrooveFamily& family;
  std::string kick, snare, cymbal, color;
  std::array<std::string, 2> bass;  // the patterns of even and of odd bars
  std::string piano, guitar;
  bool has_guitar, has_strings;
  int center;  // center of the chords' pitches
};

Style choose(PortableRandom& random) {
  const std::vector<GrooveFamily>& families = groove_families();
  const GrooveFamily& f = families[size_t(random.below(int(families.size())))];
  Style style{.family = f,
              .kick = pick(random, f.kick),
              .snare = pick(random, f.snare),
              .cymbal = pick(random, f.cymbal),
              .color = pick(random, f.color),
              .bass = {pick(random, f.bass), pick(random, f.bass)},
              .piano = pick(random, f.piano),
              .guitar = pick(random, f.guitar),
              .has_guitar = random.percent(70),
              .has_strings = random.percent(50),
              .center = 58 + random.below(8)};
  // Varies one step: an additional (ghost) note or a gap.
  std::string& varied = random.percent(50) ? style.kick : style.snare;
  char& step = varied[size_t(random.below(int(varied.size())))];
  step = step == 'x' ? '.' : 'x';
  return style;
}

int velocity(int start) { return start % groove_bar == 0 ? 96 : 80; }

void play_drums(const Style& style, int bar, bool fill, std::vector<music::Note>& notes) {
  const auto part = [&](const std::string& pattern, int pitch) {
    play(pattern, bar, [&](char, int start, int duration, int) {
      const bool cut = fill && start % groove_bar >= groove_bar / 2;
      if (!cut) notes.push_back({start, duration, pitch, velocity(start)});
    });
  };
  part(style.kick, 36);
  part(style.snare, style.family.name == "bossa" ? 37 : 38);
  part(style.cymbal, style.family.cymbal_pitch);
  part(style.color, style.family.color_pitch);
  if (!fill) return;
  constexpr std::array<int, 4> toms = {38, 48, 45, 41};
  const int steps = int(style.kick.size());
  const int step = groove_bar / steps;
  for (int i = steps / 2; i < steps; ++i) {
    const int tom = toms[size_t(8 * (i - steps / 2) / steps)];
    notes.push_back({bar * groove_bar + i * step, step - 1, tom, 90});
  }
}

void play_bass(const Style& style, int bar, const Chord& chord, const Chord& next,
               std::vector<music::Note>& notes) {
  const auto low = [](int root) { return 28 + (root + 8) % 12; };  // E and above
  const std::string& pattern = style.bass[size_t(bar % 2)];
  play(pattern, bar, [&](char kind, int start, int duration, int) {
    int pitch = low(chord.root);
    if (kind == 't') pitch += chord.intervals[1];
    if (kind == 'f') pitch += chord.intervals[2];
    if (kind == 'o') pitch += 12;
    if (kind == 'a') pitch = low(next.root) - 1;
    notes.push_back({start, duration, pitch, velocity(start)});
  });
}

/// Returns the chord's tones within six semitones of the center, in ascending order.
std::vector<int> voicing(const Chord& chord, int center) {
  std::vector<int> pitches;
  for (const int interval : chord.intervals) {
    const int tone = (chord.root + interval) % 12;
    pitches.push_back(center - 6 + (tone - (center - 6) % 12 + 12) % 12);
  }
  std::sort(pitches.begin(), pitches.end());
  return pitches;
}

void play_chords(const std::string& pattern, int bar, const std::vector<int>& pitches,
                 std::vector<music::Note>& notes) {
  play(pattern, bar, [&](char kind, int start, int duration, int number) {
    for (size_t i = 0; i < pitches.size(); ++i)
      if (kind == 'x' || size_t(number) % pitches.size() == i)
        notes.push_back({start, duration, pitches[i], velocity(start)});
  });
}

}  // namespace

music::Song generate_groove(uint64_t seed, uint64_t number) {
  uint64_t state = seed;
  state = splitmix64(state) + number;
  PortableRandom random(splitmix64(state));
  const Chart chart = compose(random);
  const Style style = choose(random);
  const GrooveFamily& family = style.family;
  music::Song song = empty_groove();
  song.quarters_per_minute = family.tempo;
  song.tracks[bass_track].program = family.bass_program;
  song.tracks[harmony_track] = {"Piano", 2, family.piano_program, {}};
  if (style.has_guitar) song.tracks.push_back({"Guitar", 2, family.guitar_program, {}});
  if (style.has_strings) song.tracks.push_back({"Strings", 2, 48, {}});
  const int bars = int(chart.size());
  for (int bar = 0; bar < bars; ++bar) {
    const Chord& chord = chart[size_t(bar)];
    const Chord& next = chart[size_t((bar + 1) % bars)];
    play_drums(style, bar, bar % 4 == 3, song.tracks[drum_track].notes);
    play_bass(style, bar, chord, next, song.tracks[bass_track].notes);
    for (size_t i = harmony_track; i < song.tracks.size(); ++i) {
      music::Track& part = song.tracks[i];
      const bool high = part.name == "Strings";
      const std::string& pattern = part.name == "Piano"    ? style.piano
                                   : part.name == "Guitar" ? style.guitar
                                                           : "x---------------";
      play_chords(pattern, bar, voicing(chord, style.center + (high ? 12 : 0)), part.notes);
    }
  }
  return song;
}

std::vector<music::Song> generate_grooves(uint64_t seed, uint64_t first, int count) {
  std::vector<music::Song> songs;
  for (int i = 0; i < count; ++i) songs.push_back(generate_groove(seed, first + uint64_t(i)));
  return songs;
}

}  // namespace stretto::examples
