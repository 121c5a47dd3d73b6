// piano_roll(): a chorale as coloured bars over time.
#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "examples/plot/chart.h"

namespace stretto::examples {
namespace {

constexpr Color kInk{40, 44, 52};
constexpr Color kFaintInk{110, 116, 126};
constexpr Color kBlackRow{243, 244, 247};
constexpr Color kBeatLine{232, 234, 238};
constexpr Color kBarLine{178, 182, 190};
constexpr Color kKeyEdge{190, 194, 200};
constexpr Color kBlackKey{60, 64, 72};

constexpr std::array<const char*, 4> kNames = {"Soprano", "Alto", "Tenor", "Bass"};
constexpr std::array<Color, 4> kVoices = {
    {{213, 94, 0}, {230, 168, 30}, {0, 150, 110}, {0, 104, 170}}};

constexpr int kRow = 12;  // pixels per semitone
constexpr int kKeyboard = 64;
constexpr int kMargin = 24;
constexpr int kTop = 84;
constexpr int kBottom = 40;
constexpr int kStepsPerBar = 16;
constexpr std::size_t kMaxSteps = 8000;

bool is_black(int pitch) {
  constexpr std::array<bool, 12> kBlackKeys = {false, true,  false, true,  false, false,
                                               true,  false, true,  false, true,  false};
  return kBlackKeys[static_cast<std::size_t>(pitch % 12)];
}

Color darker(Color c) {
  const auto scale = [](std::uint8_t v) { return static_cast<std::uint8_t>(v * 7 / 10); };
  return {scale(c.r), scale(c.g), scale(c.b)};
}

/// Where pitches and steps lie in the picture.
struct Roll {
  int low = 48;  // lowest and highest pitch shown
  int high = 72;
  int steps = kStepsPerBar;
  int step_width = 4;

  int left() const { return kMargin + kKeyboard; }
  int width() const { return steps * step_width; }
  int height() const { return (high - low + 1) * kRow; }
  int x(std::size_t step) const { return left() + static_cast<int>(step) * step_width; }
  int y(int pitch) const { return kTop + (high - pitch) * kRow; }
};

Roll lay_out(const Chorale& chorale) {
  if (chorale.steps.size() > kMaxSteps) {
    throw std::invalid_argument("piano_roll: " + std::to_string(chorale.steps.size()) +
                                " steps are too many to draw (at most 8000)");
  }
  int low = 128;
  int high = -1;
  for (const std::array<int, 4>& step : chorale.steps) {
    for (const int pitch : step) {
      if (pitch < -1 || pitch > 127) {
        throw std::invalid_argument("piano_roll: pitch " + std::to_string(pitch) +
                                    " is not in -1 .. 127");
      }
      if (pitch < 0) continue;
      low = std::min(low, pitch);
      high = std::max(high, pitch);
    }
  }
  Roll roll;
  if (high >= 0) {
    roll.low = std::max(low - 2, 0);
    roll.high = std::min(high + 2, 127);
  }
  const int bars = (static_cast<int>(chorale.steps.size()) + kStepsPerBar - 1) / kStepsPerBar;
  roll.steps = std::max(bars, 1) * kStepsPerBar;
  roll.step_width = std::clamp(1500 / roll.steps, 4, 12);
  return roll;
}

void draw_background(Image& image, const Roll& roll) {
  for (int pitch = roll.low; pitch <= roll.high; ++pitch) {
    if (is_black(pitch)) {
      image.fill_rect({roll.left(), roll.y(pitch), roll.width(), kRow}, kBlackRow);
    }
    if (pitch % 12 == 0 || pitch % 12 == 5) {  // the white keys with no black one below
      image.fill_rect({roll.left(), roll.y(pitch) + kRow - 1, roll.width(), 1}, kBeatLine);
    }
  }
  const int bars_per_number = roll.steps / kStepsPerBar > 8 ? 2 : 1;
  for (int step = 0; step <= roll.steps; step += 4) {
    const bool bar = step % kStepsPerBar == 0;
    const int x = roll.x(static_cast<std::size_t>(step));
    image.fill_rect({x, kTop, 1, roll.height()}, bar ? kBarLine : kBeatLine);
    const int number = step / kStepsPerBar;
    if (bar && step < roll.steps && number % bars_per_number == 0) {
      image.text(x + 3, kTop + roll.height() + 6, std::to_string(number + 1), kFaintInk);
    }
  }
}

void draw_keyboard(Image& image, const Roll& roll) {
  const int end = kTop + roll.height();
  image.fill_rect({kMargin, kTop, kKeyboard, roll.height()}, kWhite);
  for (int pitch = roll.low; pitch <= roll.high; ++pitch) {
    const int y = roll.y(pitch);
    if (is_black(pitch)) {
      image.fill_rect({kMargin, y + 1, kKeyboard * 5 / 9, kRow - 2}, kBlackKey);
      image.fill_rect({kMargin, y + kRow / 2, kKeyboard, 1}, kKeyEdge);
      image.fill_rect({kMargin, y + 1, kKeyboard * 5 / 9, kRow - 2}, kBlackKey);
    } else if (pitch % 12 == 0 || pitch % 12 == 5) {
      image.fill_rect({kMargin, y + kRow - 1, kKeyboard, 1}, kKeyEdge);
    }
    if (pitch % 12 == 0) {
      const std::string name = "C" + std::to_string(pitch / 12 - 1);
      image.text(kMargin + kKeyboard - 4 - text_width(name), y - 1, name, kFaintInk);
    }
  }
  image.fill_rect({kMargin, kTop, kKeyboard, 1}, kBarLine);
  image.fill_rect({kMargin, end, kKeyboard + roll.width() + 1, 1}, kBarLine);
  image.fill_rect({kMargin, kTop, 1, roll.height()}, kBarLine);
}

/// A bar with its corners taken off.
void draw_note(Image& image, const Rect& rect, Color color) {
  image.fill_rect({rect.x, rect.y + 1, rect.width, rect.height - 2}, color);
  image.fill_rect({rect.x + 1, rect.y, rect.width - 2, rect.height}, color);
  image.fill_rect({rect.x, rect.y + 1, 2, rect.height - 2}, darker(color));
}

/// How many voices before `voice` have the same pitch on `step`.
int voices_under(const Chorale& chorale, std::size_t step, std::size_t voice) {
  const std::array<int, 4>& pitches = chorale.steps[step];
  return static_cast<int>(
      std::count(pitches.begin(), pitches.begin() + static_cast<long>(voice), pitches[voice]));
}

/// Where voices sound in unison, the lower one is drawn narrower, inside the higher one's bar.
void draw_voice(Image& image, const Roll& roll, const Chorale& chorale, std::size_t voice) {
  const std::size_t count = chorale.steps.size();
  for (std::size_t begin = 0; begin < count;) {
    const int pitch = chorale.steps[begin][voice];
    const int under = voices_under(chorale, begin, voice);
    std::size_t end = begin + 1;
    while (end < count && chorale.steps[end][voice] == pitch &&
           voices_under(chorale, end, voice) == under) {
      ++end;
    }
    if (pitch >= 0) {
      const int inset = std::min(2 * under, kRow / 2 - 2);
      draw_note(image,
                {roll.x(begin) + 1, roll.y(pitch) + inset + 1, roll.x(end) - roll.x(begin) - 1,
                 kRow - 2 * inset - 2},
                kVoices[voice]);
    }
    begin = end;
  }
}

}  // namespace

Image piano_roll(const Chorale& chorale, const std::string& title) {
  const Roll roll = lay_out(chorale);
  const int width = std::max(roll.left() + roll.width() + kMargin, 560);
  Image image(width, kTop + roll.height() + kBottom);
  image.text(kMargin, 18, fit_text(title, width - 2 * kMargin, Font::kTitle), kInk, Font::kTitle);
  int x = kMargin;
  for (std::size_t voice = 0; voice < 4; ++voice) {
    draw_note(image, {x, 53, 24, 10}, kVoices[voice]);
    image.text(x + 32, 52, kNames[voice], kInk);
    x += 32 + text_width(kNames[voice]) + 24;
  }
  draw_background(image, roll);
  draw_keyboard(image, roll);
  for (std::size_t voice = 0; voice < 4; ++voice) draw_voice(image, roll, chorale, voice);
  image.text(kMargin, kTop + roll.height() + 6, "bar", kFaintInk);
  return image;
}

}  // namespace stretto::examples
