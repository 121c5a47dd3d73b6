#include "examples/chorales/chorale_song.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace stretto::examples {
namespace {

constexpr std::array<const char*, 4> voice_names = {"Soprano", "Alto", "Tenor", "Bass"};
constexpr int choir_aahs = 52;  // General MIDI

/// Returns the number of voices before `voice` that have the same pitch on `step`.
int voices_under(const Chorale& chorale, size_t step, size_t voice) {
  const std::array<int, 4>& pitches = chorale.steps[step];
  return int(std::count(pitches.begin(), pitches.begin() + int64_t(voice), pitches[voice]));
}

/// A bar ends when the pitch or the number of voices in unison changes.
std::vector<RollNote> notes_of(const Chorale& chorale, size_t voice) {
  std::vector<RollNote> notes;
  const size_t count = chorale.steps.size();
  for (size_t begin = 0; begin < count;) {
    const int pitch = chorale.steps[begin][voice];
    const int under = voices_under(chorale, begin, voice);
    size_t end = begin + 1;
    while (end < count && chorale.steps[end][voice] == pitch &&
           voices_under(chorale, end, voice) == under) {
      ++end;
    }
    if (pitch != -1) {
      notes.push_back({int(begin), int(end), pitch, std::min(2 * under, widest_inset)});
    }
    begin = end;
  }
  return notes;
}

}  // namespace

music::Song to_song(const Chorale& chorale) {
  constexpr int velocity = 80;
  music::Song song;
  const int ticks_per_step = song.ticks_per_quarter / 4;
  for (size_t voice = 0; voice < 4; ++voice) {
    music::Track track{voice_names[voice], int(voice), choir_aahs, {}};
    int previous = -1;
    for (size_t step = 0; step < chorale.steps.size(); ++step) {
      const int pitch = chorale.steps[step][voice];
      if (pitch >= 0 && pitch == previous) {
        track.notes.back().duration += ticks_per_step;
      } else if (pitch >= 0) {
        const int start = int(step) * ticks_per_step;
        track.notes.push_back({start, ticks_per_step, pitch, velocity});
      }
      previous = pitch;
    }
    song.tracks.push_back(std::move(track));
  }
  return song;
}

std::string piano_roll(const Chorale& chorale, const std::string& title) {
  constexpr std::array colors = {"#d55e00", "#e6a81e", "#00966e", "#0068aa"};
  std::vector<RollVoice> voices;
  for (size_t voice = 0; voice < 4; ++voice)
    voices.push_back({voice_names[voice], colors[voice], notes_of(chorale, voice)});
  return piano_roll({.title = title, .steps = int(chorale.steps.size())}, voices);
}

}  // namespace stretto::examples
