#include "music/chords.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace stretto::music {
namespace {

// The weight of a pitch by its distance from the root, 0 to 11 semitones.
struct Basic {
  ChordQuality quality;
  std::array<int, 12> weights;
};
constexpr std::array<Basic, 6> basics{
    Basic{ChordQuality::major, {10, -2, -1, -2, 10, -5, -2, 10, -2, -1, -2, 0}},
    Basic{ChordQuality::minor, {10, -2, -1, 10, -2, -5, -2, 10, -1, -2, 0, -2}},
    Basic{ChordQuality::diminished, {10, -2, -1, 10, -2, -1, 10, -2, -2, 1, -1, -2}},
    Basic{ChordQuality::augmented, {10, -2, -1, -2, 10, -1, -2, -2, 10, -1, -2, 0}},
    Basic{ChordQuality::sus2, {10, -2, 5, -2, -1, -5, -2, 5, -2, -1, -2, 0}},
    Basic{ChordQuality::sus4, {10, -2, -1, -2, -5, 5, -2, 5, -2, -1, -2, 0}}};

// A chord of the same notes: `basic` whose root is `above` semitones over the bass is `other` on
// the bass.
struct Inversion {
  ChordQuality basic;
  int above;
  ChordQuality other;
};
constexpr std::array<Inversion, 7> inversions{
    Inversion{ChordQuality::diminished, 4, ChordQuality::dominant},
    Inversion{ChordQuality::diminished, 3, ChordQuality::diminished_seventh},
    Inversion{ChordQuality::major, 3, ChordQuality::minor_seventh},
    Inversion{ChordQuality::minor, 4, ChordQuality::major_seventh},
    Inversion{ChordQuality::minor, 3, ChordQuality::half_diminished},
    Inversion{ChordQuality::sus2, 5, ChordQuality::sus4},
    Inversion{ChordQuality::sus4, 7, ChordQuality::sus2}};

// The sounding times of a window.
struct Sound {
  std::array<int64_t, 12> classes{};  // by pitch class
  int bass = -1;                      // pitch class; −1: none
};

Sound sound_of(const std::vector<ChordNote>& notes, int64_t begin, int64_t end) {
  Sound sound;
  std::map<int, int64_t> pitches;
  for (const ChordNote& note : notes) {
    const int64_t time = std::min(end, note.end) - std::max(begin, note.start);
    if (note.start >= end || time < 0) continue;
    sound.classes[size_t(note.pitch % 12)] += time;
    pitches[note.pitch] += time;
  }
  for (const auto& [pitch, time] : pitches)
    if (sound.bass < 0 && 8 * time >= end - begin) sound.bass = pitch % 12;
  return sound;
}

struct Scored {
  Chord chord;
  int64_t score = -1;
};

Scored best_basic(const Sound& sound) {
  Scored best{{}, 0};
  for (int root = 0; root < 12; ++root) {
    if (sound.classes[size_t(root)] == 0) continue;
    for (const Basic& basic : basics) {
      int64_t score = 0;
      for (size_t i = 0; i < 12; ++i)
        score += basic.weights[i] * sound.classes[(size_t(root) + i) % 12];
      if (score > best.score) best = {{root, basic.quality}, score};
    }
  }
  return best;
}

Scored chord_of(const std::vector<ChordNote>& notes, int64_t begin, int64_t end) {
  const Sound sound = sound_of(notes, begin, end);
  Scored best = best_basic(sound);
  if (best.score < 10 * (end - begin)) return {};
  Chord& chord = best.chord;
  if (sound.bass >= 0)
    for (const Inversion& inversion : inversions)
      if (chord.quality == inversion.basic &&
          (chord.root - sound.bass + 12) % 12 == inversion.above) {
        chord = {sound.bass, inversion.other};
        break;
      }
  // The sounding time of the pitch class `steps` above the root.
  const auto time = [&](int steps) { return sound.classes[size_t(chord.root + steps) % 12]; };
  if (chord.quality == ChordQuality::major && time(10) != time(11))
    chord.quality = time(11) > time(10) ? ChordQuality::major_seventh : ChordQuality::dominant;
  if (chord.quality == ChordQuality::minor && time(10) > 0)
    chord.quality = ChordQuality::minor_seventh;
  if (chord.quality == ChordQuality::diminished && time(9) != time(10))
    chord.quality =
        time(9) > time(10) ? ChordQuality::diminished_seventh : ChordQuality::half_diminished;
  // The notes of these chords have equal distances, so each could be the root.
  const int distance = chord.quality == ChordQuality::augmented            ? 4
                       : chord.quality == ChordQuality::diminished_seventh ? 3
                                                                           : 0;
  if (distance > 0 && sound.bass >= 0 && (chord.root - sound.bass) % distance == 0)
    chord.root = sound.bass;
  return best;
}

}  // namespace

std::vector<Chord> recognize_chords(const std::vector<ChordNote>& notes, int64_t beat) {
  constexpr int64_t most_beats = int64_t{1} << 24;
  check(beat >= 1, "recognize_chords", "a beat of ", beat, " units; expected 1 or more");
  int64_t last = 0;
  for (const ChordNote& note : notes) {
    check(0 <= note.start && note.start <= note.end && note.pitch >= 0, "recognize_chords",
          "a note from ", note.start, " to ", note.end, " of pitch ", note.pitch,
          "; expected 0 ≤ start ≤ end and a pitch of 0 or more");
    last = std::max(last, note.end);
  }
  check(last / beat < most_beats, "recognize_chords", last / beat, " beats; expected fewer than ",
        most_beats);
  std::vector<ChordNote> waiting = notes;  // latest first
  std::vector<ChordNote> sounding;         // in the current half bar
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const ChordNote& x, const ChordNote& y) { return x.start > y.start; });
  const int64_t beats = (last + beat - 1) / beat;
  std::vector<Chord> chords;
  for (int64_t half = 0; 2 * half < beats; ++half) {
    const int64_t begin = 2 * half * beat;
    std::erase_if(sounding, [&](const ChordNote& note) { return note.end < begin; });
    for (; !waiting.empty() && waiting.back().start < begin + 2 * beat; waiting.pop_back())
      sounding.push_back(waiting.back());
    const Scored both = chord_of(sounding, begin, begin + 2 * beat);
    const Scored first = chord_of(sounding, begin, begin + beat);
    const Scored second = chord_of(sounding, begin + beat, begin + 2 * beat);
    const bool complete = 2 * half + 1 < beats;
    // Scores grow with the window, so those of one beat count twice.
    const bool apart = complete ? 2 * first.score >= both.score && 2 * second.score >= both.score
                                : 2 * first.score > both.score;
    chords.push_back(apart ? first.chord : both.chord);
    if (complete) chords.push_back(apart ? second.chord : both.chord);
  }
  return chords;
}

}  // namespace stretto::music
