#include "examples/plot/canvas.h"

#include <cairo-ft.h>
#include <cairo-svg.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "examples/common/file.h"
#include "examples/common/words.h"
#include "nn/data/tokenizer.h"

namespace stretto::examples {
namespace {

constexpr int most_side = 32767;  // Cairo's limit for images

void require(cairo_status_t status) {
  if (status != CAIRO_STATUS_SUCCESS)
    throw std::runtime_error(std::string("cannot draw a picture: ") +
                             cairo_status_to_string(status));
}

struct Destroy {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
  void operator()(cairo_t* cairo) const { cairo_destroy(cairo); }
  void operator()(cairo_font_face_t* face) const { cairo_font_face_destroy(face); }
  void operator()(cairo_font_options_t* options) const { cairo_font_options_destroy(options); }
};
using Surface = std::unique_ptr<cairo_surface_t, Destroy>;

double size_of(Font font) { return font == Font::title ? 20 : 13; }

// Loads the font file found by CMake, so that pictures do not depend on a user's settings. If the
// file is missing, returns the system's substitute.
cairo_font_face_t* load_face() {
  FT_Library library = nullptr;  // library and face are never freed: Cairo's cache refers to them
  FT_Face file = nullptr;
  if (FT_Init_FreeType(&library) == 0) {
    if (FT_New_Face(library, STRETTO_FONT, 0, &file) == 0)
      return cairo_ft_font_face_create_for_ft_face(file, 0);
    FT_Done_FreeType(library);
  }
  return cairo_toy_font_face_create("DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                                    CAIRO_FONT_WEIGHT_NORMAL);
}

cairo_scaled_font_t* load_font(Font font) {
  const std::unique_ptr<cairo_font_face_t, Destroy> face(load_face());
  const std::unique_ptr<cairo_font_options_t, Destroy> options(cairo_font_options_create());
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_SLIGHT);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_ON);
  cairo_matrix_t size, identity;
  cairo_matrix_init_scale(&size, size_of(font), size_of(font));
  cairo_matrix_init_identity(&identity);
  cairo_scaled_font_t* made = cairo_scaled_font_create(face.get(), &size, &identity, options.get());
  require(cairo_scaled_font_status(made));
  return made;
}

// One font object for both files, so that they have the same layout.
cairo_scaled_font_t* font_of(Font font) {
  static cairo_scaled_font_t* const regular = load_font(Font::regular);
  static cairo_scaled_font_t* const title = load_font(Font::title);
  return font == Font::title ? title : regular;
}

double width_of(const std::string& shown, Font font) {
  cairo_text_extents_t extents{};
  cairo_scaled_font_text_extents(font_of(font), shown.c_str(), &extents);
  require(cairo_scaled_font_status(font_of(font)));
  return extents.x_advance;
}

// Returns the part of a segment that lies in `box`; false if there is none.
bool cut_to(const Rect& box, Point& a, Point& b) {
  const auto keep = [&](double Point::*across, double Point::*along, double sign, double edge) {
    const bool cut_a = sign * (a.*across - edge) > 0, cut_b = sign * (b.*across - edge) > 0;
    if (!cut_a && !cut_b) return true;
    const double share = (edge - a.*across) / (b.*across - a.*across);
    Point at{};
    at.*across = edge;
    at.*along = a.*along + share * (b.*along - a.*along);
    if (cut_a != cut_b) (cut_a ? a : b) = at;
    return cut_a != cut_b;
  };
  return keep(&Point::x, &Point::y, -1, box.x) &&
         keep(&Point::x, &Point::y, 1, box.x + box.width) &&
         keep(&Point::y, &Point::x, -1, box.y) && keep(&Point::y, &Point::x, 1, box.y + box.height);
}

cairo_status_t append(void* to, const unsigned char* bytes, unsigned count) noexcept {
  try {
    static_cast<std::string*>(to)->append(bytes, bytes + count);
    return CAIRO_STATUS_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

// Collects the bytes that Cairo writes.
std::string paint(const Surface& surface, int width, int height,
                  const std::function<void(Canvas&)>& drawing) {
  const std::unique_ptr<cairo_t, Destroy> cairo(cairo_create(surface.get()));
  Canvas canvas(cairo.get());
  canvas.fill({0, 0, double(width), double(height)}, white_color);
  drawing(canvas);
  require(cairo_status(cairo.get()));
  return canvas.texts();
}

// Renumbers surfaces, which Cairo counts from the start of the program: "surface7" becomes
// the first, "surface0".
std::string counted_anew(const std::string& svg) {
  std::map<std::string, std::string> names;
  std::map<std::string, int> counts;
  std::string text;
  for (size_t at = 0; at < svg.size();) {
    const size_t begin = std::min(svg.find_first_of("\"#", at), svg.size() - 1) + 1;
    text.append(svg, at, begin - at);
    at = begin;
    const std::string_view before = std::string_view(svg).substr(0, begin);
    if (!before.ends_with(" id=\"") && !before.ends_with("\"#") && !before.ends_with("(#"))
      continue;
    const size_t digits = svg.find_first_not_of("abcdefghijklmnopqrstuvwxyz", begin);
    const size_t end = svg.find_first_of("\")", begin);
    if (end == svg.npos || digits >= end || svg.find_first_not_of("0123456789", digits) != end)
      continue;
    std::string& name = names[svg.substr(begin, end - begin)];
    const std::string kind = svg.substr(begin, digits - begin);
    if (name.empty()) name = kind + std::to_string(counts[kind]++);
    text += name;
    at = end;
  }
  return text;
}

// Adds the texts, for search and screen readers, and makes the cells of heat maps stay sharp.
std::string with_texts(std::string svg, const std::string& title, const std::string& texts) {
  std::string head;
  if (!title.empty()) head = "<title>" + escaped(shown_text(title)) + "</title>\n";
  if (!texts.empty()) head += "<desc>" + escaped(texts) + "</desc>\n";
  svg.insert(svg.find('>', svg.find("<svg ")) + 2, head);
  for (size_t at = 0; (at = svg.find("<image ", at)) != svg.npos; ++at)
    svg.insert(at + 7, "style=\"image-rendering:pixelated\" ");
  return svg;
}

}  // namespace

int line_height(Font font) { return font == Font::title ? 24 : 16; }

int text_width(const std::string& text, Font font) {
  return int(std::ceil(width_of(shown_text(text), font)));
}

std::string fit_text(const std::string& text, int width, Font font) {
  std::string all = shown_text(text);
  if (width_of(all, font) <= width) return all;
  std::vector<size_t> ends;  // ends of the characters, in bytes
  for (size_t i = 0; i < all.size(); ++i)
    if ((uint8_t(all[i]) & 0xC0) != 0x80) ends.push_back(i);
  const auto first_too_long = std::partition_point(ends.begin(), ends.end(), [&](size_t end) {
    return width_of(all.substr(0, end) + "…", font) <= width;
  });
  return first_too_long == ends.begin() ? "" : all.substr(0, first_too_long[-1]) + "…";
}

std::string shown_text(const std::string& text) {
  constexpr std::string_view replacement = "\uFFFD";
  std::string shown;
  for (std::string_view rest = text; !rest.empty();) {
    const auto bad = nn::invalid_utf8(rest);
    const std::string_view good = rest.substr(0, bad < 0 ? rest.size() : size_t(bad));
    for (const char c : good) shown += (c >= 0 && c < ' ') || c == 0x7F ? ' ' : c;
    rest.remove_prefix(good.size());
    if (rest.empty()) break;
    shown += replacement;
    rest.remove_prefix(1);
  }
  for (const std::string_view none : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"})  // U+FFFE, U+FFFF
    for (size_t at = 0; (at = shown.find(none, at)) != shown.npos;)
      shown.replace(at, none.size(), replacement);
  return shown;
}

void Canvas::use(Color color) {
  cairo_set_source_rgb(cairo_, color.r / 255.0, color.g / 255.0, color.b / 255.0);
}

void Canvas::fill(const Rect& rect, Color color) {
  use(color);
  cairo_rectangle(cairo_, rect.x, rect.y, rect.width, rect.height);
  cairo_fill(cairo_);
}

void Canvas::fill(const std::vector<Rect>& rects, Color color, double cut) {
  use(color);
  for (const Rect& r : rects) {
    const double right = r.x + r.width, bottom = r.y + r.height;
    cairo_move_to(cairo_, r.x + cut, r.y);
    cairo_line_to(cairo_, right - cut, r.y);
    cairo_line_to(cairo_, right, r.y + cut);
    cairo_line_to(cairo_, right, bottom - cut);
    cairo_line_to(cairo_, right - cut, bottom);
    cairo_line_to(cairo_, r.x + cut, bottom);
    cairo_line_to(cairo_, r.x, bottom - cut);
    cairo_line_to(cairo_, r.x, r.y + cut);
    cairo_close_path(cairo_);
  }
  cairo_fill(cairo_);
}

void Canvas::line(const std::vector<Point>& points, Color color, double thickness, const Rect& clip,
                  bool dashed) {
  constexpr double margin = 50;  // joins and caps at the edge lie outside
  const Rect box{clip.x - margin, clip.y - margin, clip.width + 2 * margin,
                 clip.height + 2 * margin};
  cairo_save(cairo_);
  cairo_rectangle(cairo_, clip.x, clip.y, clip.width, clip.height);
  cairo_clip(cairo_);
  use(color);
  if (points.size() == 1) {
    Point p = points[0], same = p;
    if (cut_to(box, p, same)) {
      cairo_arc(cairo_, p.x, p.y, 1.5 * thickness, 0, 2 * M_PI);
      cairo_fill(cairo_);
    }
  }
  bool open = false;
  for (size_t i = 1; i < points.size(); ++i) {
    Point a = points[i - 1], b = points[i];
    if (!cut_to(box, a, b)) {
      open = false;
      continue;
    }
    if (!open || a.x != points[i - 1].x || a.y != points[i - 1].y) cairo_move_to(cairo_, a.x, a.y);
    cairo_line_to(cairo_, b.x, b.y);
    open = b.x == points[i].x && b.y == points[i].y;
  }
  const double dashes[] = {7, 5};
  if (dashed) cairo_set_dash(cairo_, dashes, 2, 0);
  cairo_set_line_width(cairo_, thickness);
  cairo_set_line_join(cairo_, CAIRO_LINE_JOIN_ROUND);
  cairo_set_line_cap(cairo_, dashed ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
  cairo_stroke(cairo_);
  cairo_restore(cairo_);
}

void Canvas::text(double x, double y, const std::string& text, Color color, Font font,
                  Align align) {
  const std::string shown = shown_text(text);
  if (shown.empty()) return;
  texts_ += shown + "\n";
  const double width = align == Align::left ? 0 : width_of(shown, font);
  const double left = x - (align == Align::middle ? width / 2 : width);
  use(color);
  cairo_set_scaled_font(cairo_, font_of(font));
  cairo_move_to(cairo_, std::round(left), std::round(y));
  cairo_show_text(cairo_, shown.c_str());
  cairo_new_path(cairo_);  // drawing text leaves a current point
}

void Canvas::pixels(int x, int y, int width, int height,
                    const std::function<Color(int, int)>& color) {
  const Surface image(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  require(cairo_surface_status(image.get()));
  unsigned char* const data = cairo_image_surface_get_data(image.get());
  const int stride = cairo_image_surface_get_stride(image.get());
  for (int dy = 0; dy < height; ++dy) {
    auto* row = reinterpret_cast<uint32_t*>(data + std::ptrdiff_t(dy) * stride);
    for (int dx = 0; dx < width; ++dx) {
      const Color c = color(dx, dy);
      row[dx] = uint32_t(c.r) << 16 | uint32_t(c.g) << 8 | c.b;
    }
  }
  cairo_surface_mark_dirty(image.get());
  cairo_set_source_surface(cairo_, image.get(), x, y);
  cairo_pattern_set_filter(cairo_get_source(cairo_), CAIRO_FILTER_NEAREST);
  cairo_paint(cairo_);
}

Picture draw(int width, int height, const std::string& title,
             const std::function<void(Canvas&)>& drawing) {
  if (width < 1 || height < 1 || width > most_side || height > most_side)
    throw std::invalid_argument("a picture of " + std::to_string(width) + " x " +
                                std::to_string(height) + " pixels; sides must be 1 to " +
                                std::to_string(most_side));
  Picture picture{width, height, {}, {}};
  const Surface svg(cairo_svg_surface_create_for_stream(append, &picture.svg, width, height));
  cairo_svg_surface_set_document_unit(svg.get(), CAIRO_SVG_UNIT_PX);
  const std::string texts = paint(svg, width, height, drawing);
  cairo_surface_finish(svg.get());
  require(cairo_surface_status(svg.get()));
  picture.svg = with_texts(counted_anew(picture.svg), title, texts);

  const Surface image(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  paint(image, width, height, drawing);
  require(cairo_surface_write_to_png_stream(image.get(), append, &picture.png));
  return picture;
}

void write_picture(const std::string& path, const Picture& picture) {
  write_file_atomically(path + ".svg", picture.svg);
  write_file_atomically(path + ".png", picture.png);
}

}  // namespace stretto::examples
