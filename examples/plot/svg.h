// Writes SVG: shapes and text at positions in pixels from the top left.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stretto::examples {

constexpr const char *ink_color = "#282c34", *faint_ink_color = "#6e747e";

struct Box {
  double x, y, width, height;
};

/// Returns `text` as content of SVG or HTML elements (not of attributes): <, > and & are entities,
/// control characters become spaces, and bytes that are not UTF-8 and characters that XML forbids
/// become U+FFFD.
std::string escaped(const std::string& text);

constexpr int font_size = 13, heading_size = 20;

/// Returns an estimate of the width of `text` in pixels: the font is the reader's sans-serif.
double text_width(const std::string& text, int size = font_size);

/// Returns `text`, or as many of its first characters as fit into `width` pixels, followed by "…".
std::string fit_text(const std::string& text, double width, int size = font_size);

/// A picture on white. Colors are those of CSS, such as "#282c34".
class Svg {
 public:
  /// Begins a picture with a heading at the top left.
  Svg(int width, int height, const std::string& title);

  void rect(const Box& box, const std::string& color, double radius = 0);
  /// Draws a line through the points, or for a single point a dot of three times the thickness.
  void line(const std::vector<std::pair<double, double>>& points, const std::string& color,
            double thickness, bool dashed = false);
  /// Draws one line of text on the baseline y; `anchor` is "start", "middle" or "end" of the text,
  /// which is at x.
  void text(double x, double y, const std::string& text, const std::string& color,
            const std::string& anchor = "start", int size = font_size);

  /// Elements until end() are drawn only inside `box`, where they have the coordinates `inside`.
  void begin(const Box& box, const Box& inside);
  void end() { add("</svg>"); }
  void add(const std::string& element) { svg_ += element + "\n"; }

  std::string finished() const { return svg_ + "</svg>\n"; }

 private:
  std::string svg_;
};

}  // namespace stretto::examples
