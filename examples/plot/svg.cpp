#include "examples/plot/svg.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/utf8.h"

namespace stretto::examples {
namespace {

bool begins_character(char c) { return (uint8_t(c) & 0xC0) != 0x80; }

std::string attributes(const Box& b) {
  return str("x=\"", b.x, "\" y=\"", b.y, "\" width=\"", b.width, "\" height=\"", b.height, "\"");
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe, storage;
  for (const char c : repaired_utf8(text, storage))
    if (c == '<' || c == '>' || c == '&')
      safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
    else
      safe += uint8_t(c) < ' ' || c == 0x7F ? ' ' : c;
  for (const char* forbidden : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"})  // U+FFFE, U+FFFF
    for (size_t at = 0; (at = safe.find(forbidden, at)) != safe.npos;)
      safe.replace(at, 3, "\uFFFD");
  return safe;
}

double text_width(const std::string& text, int size) {
  const int each = size * 2 / 3;
  return double(each * std::count_if(text.begin(), text.end(), begins_character));
}

std::string fit_text(const std::string& text, double width, int size) {
  if (text_width(text, size) <= width) return text;
  const int each = size * 2 / 3, fitting = int((width - text_width("…", size)) / each);
  size_t end = 0;
  for (int i = 0; i < fitting; ++i)
    end = size_t(std::find_if(text.begin() + int64_t(end) + 1, text.end(), begins_character) -
                 text.begin());
  return end == 0 ? "" : text.substr(0, end) + "…";
}

Svg::Svg(int width, int height, const std::string& title) {
  add(str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
          "\" viewBox=\"0 0 ", width, " ", height, "\" font-family=\"sans-serif\">"));
  add("<title>" + escaped(title) + "</title>");
  rect({0, 0, double(width), double(height)}, "#ffffff");
  text(24, 37, fit_text(title, width - 48, heading_size), ink_color, "start", heading_size);
}

void Svg::rect(const Box& box, const std::string& color, double radius) {
  add(str("<rect ", attributes(box), radius > 0 ? str(" rx=\"", radius, "\"") : "", " fill=\"",
          color, "\"/>"));
}

void Svg::line(const std::vector<std::pair<double, double>>& points, const std::string& color,
               double thickness, bool dashed) {
  if (points.size() == 1)
    return add(str("<circle cx=\"", points[0].first, "\" cy=\"", points[0].second, "\" r=\"",
                   1.5 * thickness, "\" fill=\"", color, "\"/>"));
  std::string list;
  for (const auto& [x, y] : points) list += str(list.empty() ? "" : " ", x, ",", y);
  add(str("<polyline fill=\"none\" stroke=\"", color, "\" stroke-width=\"", thickness,
          "\" stroke-linejoin=\"round\"", dashed ? " stroke-dasharray=\"7 5\"" : "", " points=\"",
          list, "\"/>"));
}

void Svg::text(double x, double y, const std::string& text, const std::string& color,
               const std::string& anchor, int size) {
  add(str("<text x=\"", x, "\" y=\"", y, "\" fill=\"", color, "\" text-anchor=\"", anchor,
          "\" font-size=\"", size, "\">", escaped(text), "</text>"));
}

void Svg::begin(const Box& box, const Box& inside) {
  add(str("<svg ", attributes(box), " viewBox=\"", inside.x, " ", inside.y, " ", inside.width, " ",
          inside.height, "\" preserveAspectRatio=\"none\">"));
}

}  // namespace stretto::examples
