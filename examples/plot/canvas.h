// Draws with Cairo, in pixels from the top left. The same drawing code is used for SVG and PNG.
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

/// Returns the distance between lines of text in pixels.
int line_height(Font font);

/// Returns the width of a line of text in pixels.
int text_width(const std::string& text, Font font = Font::regular);

/// Returns `text`, or as many of its first characters as fit into `width` pixels, followed by "…".
std::string fit_text(const std::string& text, int width, Font font = Font::regular);

/// Returns `text` as it is drawn: bytes that are not UTF-8 and characters that XML forbids become
/// U+FFFD, control characters become spaces.
std::string shown_text(const std::string& text);

/// A drawing surface. Edges at integer coordinates are sharp; everything outside the
/// picture is clipped.
class Canvas {
 public:
  /// Draws to `cairo`, which the caller owns.
  explicit Canvas(cairo_t* cairo) : cairo_(cairo) {}

  void fill(const Rect& rect, Color color);
  /// Fills all rectangles as one shape, with their corners cut off by `cut` pixels.
  void fill(const std::vector<Rect>& rects, Color color, double cut);

  /// Draws a line through `points` with round joins, or for a single point a dot of three times
  /// the thickness; everything outside `clip`, however far, is left out. A Point that is not
  /// finite is an error.
  void line(const std::vector<Point>& points, Color color, double thickness, const Rect& clip,
            bool dashed = false);

  /// Draws one line of text (shown_text) on the baseline y; `align` says whether x is its
  /// start, middle or end.
  void text(double x, double y, const std::string& text, Color color, Font font = Font::regular,
            Align align = Align::left);

  /// Draws a block of pixels; color(dx, dy) is the color at this offset from the top left.
  void pixels(int x, int y, int width, int height, const std::function<Color(int, int)>& color);

  /// Returns all texts drawn so far, one per line.
  const std::string& texts() const { return texts_; }

 private:
  void use(Color color);

  cairo_t* cairo_;
  std::string texts_;
};

/// Returns the picture that `drawing` draws on white. `drawing` is called twice and must do the
/// same both times. Throws std::invalid_argument for a side below 1 or above 32767 pixels, and
/// std::runtime_error if Cairo fails (out of memory).
Picture draw(int width, int height, const std::string& title,
             const std::function<void(Canvas&)>& drawing);

}  // namespace stretto::examples
