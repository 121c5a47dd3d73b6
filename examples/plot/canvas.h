// What pictures are drawn with: Cairo, in pixels from the top left, once for both files.
#pragma once

#include <cairo.h>

#include <functional>
#include <string>
#include <vector>

#include "examples/plot/picture.h"

namespace stretto::examples {

struct Point {
  double x, y;
};

struct Rect {
  double x, y, width, height;
};

enum class Font { regular, title };
enum class Align { left, middle, right };

constexpr Color white_color{255, 255, 255}, ink_color{40, 44, 52}, faint_ink_color{110, 116, 126};

/// Pixels from one line of text to the next.
int line_height(Font font);

/// Width of a line of text in pixels.
int text_width(const std::string& text, Font font = Font::regular);

/// `text`, or as many of its first characters as `width` pixels hold with "…" behind them.
std::string fit_text(const std::string& text, int width, Font font = Font::regular);

/// `text` as it is shown: bytes that are not UTF-8 and what XML forbids are replaced by U+FFFD,
/// control characters by spaces.
std::string shown_text(const std::string& text);

/// Edges at whole numbers are sharp; what falls outside the picture is not drawn.
class Canvas {
 public:
  /// Draws to `cairo`, which the caller keeps.
  explicit Canvas(cairo_t* cairo) : cairo_(cairo) {}

  void fill(const Rect& rect, Color color);
  /// All of them as one shape, `cut` pixels taken off the corners.
  void fill(const std::vector<Rect>& rects, Color color, double cut);

  /// A line through `points`, round where it turns, or a dot three times as wide for a single
  /// point; what lies outside `clip`, however far, is left out. A Point that is not finite is an
  /// error.
  void line(const std::vector<Point>& points, Color color, double thickness, const Rect& clip,
            bool dashed = false);

  /// One line of text (shown_text) on the baseline y; x is where it begins, its middle or its end.
  void text(double x, double y, const std::string& text, Color color, Font font = Font::regular,
            Align align = Align::left);

  /// A block of whole pixels; color(dx, dy) is that of one, from the top left.
  void pixels(int x, int y, int width, int height, const std::function<Color(int, int)>& color);

  /// What has been written, a line each.
  const std::string& texts() const { return texts_; }

 private:
  void use(Color color);

  cairo_t* cairo_;
  std::string texts_;
};

/// The picture that `drawing` makes on white; it is called twice, and must do the same both times.
/// Throws std::invalid_argument for a side below 1 or above 32767 pixels, and std::runtime_error
/// where Cairo fails (out of memory).
Picture draw(int width, int height, const std::string& title,
             const std::function<void(Canvas&)>& drawing);

}  // namespace stretto::examples
