#include "examples/chorales/chorale_roll.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace stretto::examples {
namespace {

/// How many voices before `voice` have the same pitch on `step`.
int voices_under(const Chorale& chorale, size_t step, size_t voice) {
  const std::array<int, 4>& pitches = chorale.steps[step];
  return int(std::count(pitches.begin(), pitches.begin() + int64_t(voice), pitches[voice]));
}

/// A bar ends where the pitch changes, or how many voices sound it.
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

Picture piano_roll(const Chorale& chorale, const std::string& title) {
  constexpr std::array<const char*, 4> names = {"Soprano", "Alto", "Tenor", "Bass"};
  constexpr std::array<Color, 4> colors = {
      {{213, 94, 0}, {230, 168, 30}, {0, 150, 110}, {0, 104, 170}}};
  std::vector<RollVoice> voices;
  for (size_t voice = 0; voice < 4; ++voice)
    voices.push_back({names[voice], colors[voice], notes_of(chorale, voice)});
  return piano_roll({.title = title, .steps = int(chorale.steps.size())}, voices);
}

}  // namespace stretto::examples
