// piano_roll(): notes as colored bars over time.
#include <algorithm>
#include <string>

#include "core/error.h"
#include "examples/plot/chart.h"
#include "examples/plot/svg.h"

namespace stretto::examples {
namespace {

constexpr const char *black_row = "#f3f4f7", *beat_color = "#e8eaee", *bar_color = "#b2b6be";
constexpr int row = 12, left = 56, top = 84;  // pixels; a row is a semitone

bool is_black(int pitch) { return std::string("010100101010")[size_t(pitch % 12)] == '1'; }

/// The range of pitches and steps shown.
struct Roll {
  int low = 48, high = 72, steps, steps_per_beat, step_width;

  double width() const { return steps * step_width; }
  double height() const { return (high - low + 1) * row; }
  double x(int step) const { return left + step * step_width; }
  double y(int pitch) const { return top + (high - pitch) * row; }
};

Roll lay_out(const RollOptions& options, const std::vector<RollVoice>& voices) {
  const int per_beat = options.steps_per_beat, bar = 4 * per_beat, most = 2000 * per_beat;
  int low = 128, high = -1, steps = std::max(options.steps, 1);
  for (const RollVoice& voice : voices)
    for (const RollNote& note : voice.notes) {
      check(note.pitch >= 0 && note.pitch <= 127 && note.begin >= 0 && note.end > note.begin,
            "piano_roll", "a note of pitch ", note.pitch, " from step ", note.begin, " to ",
            note.end, "; pitches are 0 to 127, and a note ends after it begins");
      if (note.end > most) continue;
      low = std::min(low, note.pitch), high = std::max(high, note.pitch);
      steps = std::max(steps, note.end);
    }
  steps = (std::min(steps, most) + bar - 1) / bar * bar;
  Roll roll{.steps = steps,
            .steps_per_beat = per_beat,
            .step_width = std::max(std::min(1500 / steps, 12), 16 / per_beat)};
  if (high >= 0) roll.low = std::max(low - 2, 0), roll.high = std::min(high + 2, 127);
  return roll;
}

void draw_grid(Svg& svg, const Roll& roll) {
  const double bottom = top + roll.height();
  for (int pitch = roll.low; pitch <= roll.high; ++pitch) {
    if (is_black(pitch)) svg.rect({left, roll.y(pitch), roll.width(), row}, black_row);
    if (pitch % 12 == 0 || pitch % 12 == 5)  // white keys without a black key below
      svg.rect({left, roll.y(pitch) + row - 1, roll.width(), 1}, beat_color);
    if (pitch % 12 == 0)
      svg.text(left - 8, roll.y(pitch) + row - 1, str("C", pitch / 12 - 1), faint_ink_color, "end");
  }
  const int bar = 4 * roll.steps_per_beat, bars_per_number = roll.steps > 8 * bar ? 2 : 1;
  for (int step = 0; step <= roll.steps; step += roll.steps_per_beat) {
    svg.rect({roll.x(step), top, 1, roll.height()}, step % bar == 0 ? bar_color : beat_color);
    if (step < roll.steps && step % (bar * bars_per_number) == 0)
      svg.text(roll.x(step) + 3, bottom + 18, str(step / bar + 1), faint_ink_color);
  }
  svg.rect({left, bottom, roll.width() + 1, 1}, bar_color);
  svg.text(left - 8, bottom + 18, "bar", faint_ink_color, "end");
}

}  // namespace

std::string piano_roll(const RollOptions& options, const std::vector<RollVoice>& voices) {
  const Roll roll = lay_out(options, voices);
  Svg svg(std::max(int(roll.x(roll.steps)) + 24, 560), int(top + roll.height() + 40),
          options.title);
  double at = 24;
  for (const RollVoice& voice : voices) {
    svg.rect({at, 53, 24, 10}, voice.color, 2);
    svg.text(at + 32, 63, voice.name, ink_color);
    at += 56 + text_width(voice.name);
  }
  draw_grid(svg, roll);
  for (const RollVoice& voice : voices)
    for (const RollNote& note : voice.notes)
      if (note.end <= roll.steps) {
        const double x = roll.x(note.begin) + 1, inset = note.inset + 1;
        svg.rect(
            {x, roll.y(note.pitch) + inset, std::max(roll.x(note.end) - x, 3.0), row - 2 * inset},
            voice.color, 2);
      }
  return svg.finished();
}

}  // namespace stretto::examples
