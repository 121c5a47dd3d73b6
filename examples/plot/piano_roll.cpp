// piano_roll(): notes as colored bars over time.
#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "examples/plot/canvas.h"
#include "examples/plot/chart.h"

namespace stretto::examples {
namespace {

constexpr Color black_row{243, 244, 247};
constexpr Color beat_line{232, 234, 238};
constexpr Color bar_line{178, 182, 190};
constexpr Color key_edge{190, 194, 200};
constexpr Color black_key{60, 64, 72};

constexpr int row_pixels = 12;  // pixels per semitone
constexpr int keyboard_width = 64;
constexpr int margin = 24;
constexpr int top_margin = 84;
constexpr int bottom_margin = 40;
constexpr int max_beats = 2000;

bool is_black(int pitch) {
  constexpr std::array<bool, 12> black_keys = {false, true,  false, true,  false, false,
                                               true,  false, true,  false, true,  false};
  return black_keys[size_t(pitch % 12)];
}

Color darker(Color c) {
  const auto scale = [](uint8_t v) { return uint8_t(v * 7 / 10); };
  return {scale(c.r), scale(c.g), scale(c.b)};
}

/// Maps pitches and steps to positions in the picture.
struct Roll {
  int low = 48;  // lowest and highest pitch shown
  int high = 72;
  int steps = 16;
  int steps_per_beat = 4;
  int step_width = 4;

  int left() const { return margin + keyboard_width; }
  int width() const { return steps * step_width; }
  int height() const { return (high - low + 1) * row_pixels; }
  int x(int step) const { return left() + step * step_width; }
  int y(int pitch) const { return top_margin + (high - pitch) * row_pixels; }
  int steps_per_bar() const { return 4 * steps_per_beat; }
};

void require(bool good, const std::string& message) {
  if (!good) throw std::invalid_argument("piano_roll: " + message);
}

Roll lay_out(const RollOptions& options, const std::vector<RollVoice>& voices) {
  require(options.steps_per_beat >= 1 && options.steps_per_beat <= 16,
          "steps_per_beat is " + std::to_string(options.steps_per_beat) + "; expected 1 to 16");
  int low = 128;
  int high = -1;
  int steps = std::max(options.steps, 1);
  for (const RollVoice& voice : voices) {
    for (const RollNote& note : voice.notes) {
      require(note.pitch >= 0 && note.pitch <= 127,
              "pitch " + std::to_string(note.pitch) + " is not in 0 .. 127");
      require(note.begin >= 0 && note.end > note.begin,
              "a note from step " + std::to_string(note.begin) + " to " + std::to_string(note.end));
      low = std::min(low, note.pitch);
      high = std::max(high, note.pitch);
      steps = std::max(steps, note.end);
    }
  }
  Roll roll;
  roll.steps_per_beat = options.steps_per_beat;
  require(steps <= max_beats * roll.steps_per_beat,
          std::to_string(steps) + " steps are too many to draw (at most " +
              std::to_string(max_beats * roll.steps_per_beat) + ")");
  if (high >= 0) {
    roll.low = std::max(low - 2, 0);
    roll.high = std::min(high + 2, 127);
  }
  const int bar = roll.steps_per_bar();
  roll.steps = (steps + bar - 1) / bar * bar;
  roll.step_width = std::max(std::min(1500 / roll.steps, 12), 16 / roll.steps_per_beat);
  return roll;
}

Rect rect(int x, int y, int width, int height) {
  return {double(x), double(y), double(width), double(height)};
}

void draw_background(Canvas& canvas, const Roll& roll) {
  for (int pitch = roll.low; pitch <= roll.high; ++pitch) {
    if (is_black(pitch))
      canvas.fill(rect(roll.left(), roll.y(pitch), roll.width(), row_pixels), black_row);
    if (pitch % 12 == 0 || pitch % 12 == 5)  // white keys without a black key below
      canvas.fill(rect(roll.left(), roll.y(pitch) + row_pixels - 1, roll.width(), 1), beat_line);
  }
  const int bars_per_number = roll.steps / roll.steps_per_bar() > 8 ? 2 : 1;
  for (int step = 0; step <= roll.steps; step += roll.steps_per_beat) {
    const bool bar = step % roll.steps_per_bar() == 0;
    const int x = roll.x(step);
    canvas.fill(rect(x, top_margin, 1, roll.height()), bar ? bar_line : beat_line);
    const int number = step / roll.steps_per_bar();
    if (bar && step < roll.steps && number % bars_per_number == 0)
      canvas.text(x + 3, top_margin + roll.height() + 18, std::to_string(number + 1),
                  faint_ink_color);
  }
}

void draw_keyboard(Canvas& canvas, const Roll& roll) {
  const int end = top_margin + roll.height();
  canvas.fill(rect(margin, top_margin, keyboard_width, roll.height()), white_color);
  for (int pitch = roll.low; pitch <= roll.high; ++pitch) {
    const int y = roll.y(pitch);
    if (is_black(pitch)) {
      canvas.fill(rect(margin, y + row_pixels / 2, keyboard_width, 1), key_edge);
      canvas.fill(rect(margin, y + 1, keyboard_width * 5 / 9, row_pixels - 2), black_key);
    } else if (pitch % 12 == 0 || pitch % 12 == 5) {
      canvas.fill(rect(margin, y + row_pixels - 1, keyboard_width, 1), key_edge);
    }
    if (pitch % 12 == 0)
      canvas.text(margin + keyboard_width - 4, y + row_pixels - 1,
                  "C" + std::to_string(pitch / 12 - 1), faint_ink_color, Font::regular,
                  Align::right);
  }
  canvas.fill(rect(margin, top_margin, keyboard_width, 1), bar_line);
  canvas.fill(rect(margin, end, keyboard_width + roll.width() + 1, 1), bar_line);
  canvas.fill(rect(margin, top_margin, 1, roll.height()), bar_line);
}

/// Draws bars with their corners cut off, darker at their beginning.
void draw_notes(Canvas& canvas, const std::vector<Rect>& bars, Color color) {
  std::vector<Rect> onsets;
  for (const Rect& bar : bars) onsets.push_back({bar.x, bar.y + 1, 2, bar.height - 2});
  canvas.fill(bars, color, 1);
  canvas.fill(onsets, darker(color), 0);
}

std::vector<Rect> bars_of(const RollVoice& voice, const Roll& roll) {
  std::vector<Rect> bars;
  for (const RollNote& note : voice.notes) {
    const int from = roll.x(note.begin) + 1;
    bars.push_back(rect(from, roll.y(note.pitch) + note.inset + 1,
                        std::max(roll.x(note.end) - from, 3), row_pixels - 2 * note.inset - 2));
  }
  return bars;
}

}  // namespace

Picture piano_roll(const RollOptions& options, const std::vector<RollVoice>& voices) {
  const Roll roll = lay_out(options, voices);
  const int width = std::max(roll.left() + roll.width() + margin, 560);
  return draw(width, top_margin + roll.height() + bottom_margin, options.title,
              [&](Canvas& canvas) {
                canvas.text(margin, 35, fit_text(options.title, width - 2 * margin, Font::title),
                            ink_color, Font::title);
                int x = margin;
                for (const RollVoice& voice : voices) {
                  draw_notes(canvas, {rect(x, 53, 24, 10)}, voice.color);
                  canvas.text(x + 32, 63, voice.name, ink_color);
                  x += 32 + text_width(voice.name) + 24;
                }
                draw_background(canvas, roll);
                draw_keyboard(canvas, roll);
                for (const RollVoice& voice : voices)
                  draw_notes(canvas, bars_of(voice, roll), voice.color);
                canvas.text(margin, top_margin + roll.height() + 18, "bar", faint_ink_color);
              });
}

}  // namespace stretto::examples
