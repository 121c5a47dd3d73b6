// A picture in memory: enough drawing for charts, and PNG files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/plot/font.h"

namespace stretto::examples {

struct Color {
  std::uint8_t r, g, b;

  friend bool operator==(const Color&, const Color&) = default;
};

inline constexpr Color kWhite{255, 255, 255};
inline constexpr Color kBlack{0, 0, 0};

/// Pixels by their centres: pixel (0, 0), the top left one, covers -0.5 to 0.5 both ways.
struct Point {
  double x, y;
};

/// A block of pixels.
struct Rect {
  int x, y, width, height;
};

/// An RGB picture, 8 bits a channel, y downwards. What falls outside is not drawn.
struct Image {
  /// Throws std::invalid_argument for a side below 1 or above 32767 pixels.
  Image(int width, int height, Color background = kWhite);

  int width;
  int height;
  std::vector<std::uint8_t> pixels;  ///< r, g, b of the first row from the left, then the next row

  /// Throws std::out_of_range outside the picture.
  Color at(int x, int y) const;
  void set(int x, int y, Color color);

  /// Mixes `color` over the pixel; `opacity` is 0 to 1.
  void blend(int x, int y, Color color, double opacity);

  void fill_rect(const Rect& rect, Color color);

  /// An anti-aliased line with round ends, `thickness` pixels wide.
  void line(Point from, Point to, Color color, double thickness = 1);

  /// Anti-aliased lines through `points`, only inside `clip`; the stroke has one even tone however
  /// close the points are. Points that are not finite are left out.
  void polyline(const std::vector<Point>& points, Color color, double thickness, const Rect& clip);

  /// One line of text whose top left is (x, y). Printable ASCII; other bytes show as '?'.
  void text(int x, int y, std::string_view text, Color color, Font font = Font::kRegular);
};

/// Width of a line of text in pixels.
int text_width(std::string_view text, Font font = Font::kRegular);

/// `text`, or as much of its beginning as `width` pixels hold followed by "...".
std::string fit_text(const std::string& text, int width, Font font = Font::kRegular);

/// `image` as a PNG file in memory. Throws std::runtime_error if libpng fails.
std::string png_bytes(const Image& image);

/// Writes png_bytes(image), replacing the file at `path` in one go. Throws as png_bytes() and
/// write_file_atomically() do.
void write_png(const std::string& path, const Image& image);

}  // namespace stretto::examples
