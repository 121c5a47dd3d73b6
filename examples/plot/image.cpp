#include "examples/plot/image.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "examples/common/file.h"

namespace stretto::examples {
namespace {

constexpr int kMaxSide = 32767;

std::size_t offset(const Image& image, int x, int y) {
  const std::size_t row = static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width);
  return 3 * (row + static_cast<std::size_t>(x));
}

bool inside(const Image& image, int x, int y) {
  return x >= 0 && x < image.width && y >= 0 && y < image.height;
}

std::uint8_t mix(std::uint8_t under, std::uint8_t over, double opacity) {
  return static_cast<std::uint8_t>(std::lround(under + (over - under) * opacity));
}

/// The part of `rect` inside `image`.
Rect clipped(const Image& image, const Rect& rect) {
  const int x0 = std::clamp(rect.x, 0, image.width);
  const int y0 = std::clamp(rect.y, 0, image.height);
  const int x1 = std::clamp(rect.x + rect.width, x0, image.width);
  const int y1 = std::clamp(rect.y + rect.height, y0, image.height);
  return {x0, y0, x1 - x0, y1 - y0};
}

double distance_to_segment(Point p, Point a, Point b) {
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double length2 = dx * dx + dy * dy;
  const double along =
      length2 > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0, 1.0) : 0.0;
  return std::hypot(p.x - a.x - along * dx, p.y - a.y - along * dy);
}

int to_pixel(double value, int low, int high) {
  return static_cast<int>(std::clamp(value, static_cast<double>(low), static_cast<double>(high)));
}

/// How much of each pixel of a rectangle is covered, 0 to 1.
class Mask {
 public:
  explicit Mask(const Rect& rect)
      : rect_(rect),
        cover_(static_cast<std::size_t>(rect.width) * static_cast<std::size_t>(rect.height)) {}

  void add_segment(Point a, Point b, double thickness) {
    const double reach = thickness / 2 + 0.5;
    const int x_end = rect_.x + rect_.width;
    const int y_end = rect_.y + rect_.height;
    const int x0 = to_pixel(std::floor(std::min(a.x, b.x) - reach), rect_.x, x_end);
    const int x1 = to_pixel(std::ceil(std::max(a.x, b.x) + reach) + 1, rect_.x, x_end);
    const int y0 = to_pixel(std::floor(std::min(a.y, b.y) - reach), rect_.y, y_end);
    const int y1 = to_pixel(std::ceil(std::max(a.y, b.y) + reach) + 1, rect_.y, y_end);
    for (int y = y0; y < y1; ++y) {
      for (int x = x0; x < x1; ++x) {
        const Point centre{static_cast<double>(x), static_cast<double>(y)};
        const double cover = std::min(reach - distance_to_segment(centre, a, b), 1.0);
        float& cell = at(x, y);
        cell = std::max(cell, static_cast<float>(cover));
      }
    }
  }

  void paint(Image& image, Color color) {
    for (int y = rect_.y; y < rect_.y + rect_.height; ++y) {
      for (int x = rect_.x; x < rect_.x + rect_.width; ++x) {
        if (at(x, y) > 0) image.blend(x, y, color, at(x, y));
      }
    }
  }

 private:
  float& at(int x, int y) {
    const std::size_t row =
        static_cast<std::size_t>(y - rect_.y) * static_cast<std::size_t>(rect_.width);
    return cover_[row + static_cast<std::size_t>(x - rect_.x)];
  }

  Rect rect_;
  std::vector<float> cover_;
};

}  // namespace

Image::Image(int width_in, int height_in, Color background) : width(width_in), height(height_in) {
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide) {
    throw std::invalid_argument("an image of " + std::to_string(width) + " x " +
                                std::to_string(height) + " pixels; sides must be 1 to 32767");
  }
  pixels.resize(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  fill_rect({0, 0, width, height}, background);
}

Color Image::at(int x, int y) const {
  if (!inside(*this, x, y)) throw std::out_of_range("no such pixel");
  const std::size_t i = offset(*this, x, y);
  return {pixels[i], pixels[i + 1], pixels[i + 2]};
}

void Image::set(int x, int y, Color color) {
  if (!inside(*this, x, y)) return;
  const std::size_t i = offset(*this, x, y);
  pixels[i] = color.r;
  pixels[i + 1] = color.g;
  pixels[i + 2] = color.b;
}

void Image::blend(int x, int y, Color color, double opacity) {
  if (!inside(*this, x, y)) return;
  const Color under = at(x, y);
  const double share = std::clamp(opacity, 0.0, 1.0);
  set(x, y,
      {mix(under.r, color.r, share), mix(under.g, color.g, share), mix(under.b, color.b, share)});
}

void Image::fill_rect(const Rect& rect, Color color) {
  const Rect area = clipped(*this, rect);
  for (int y = area.y; y < area.y + area.height; ++y) {
    for (int x = area.x; x < area.x + area.width; ++x) set(x, y, color);
  }
}

void Image::line(Point from, Point to, Color color, double thickness) {
  polyline({from, to}, color, thickness, {0, 0, width, height});
}

void Image::polyline(const std::vector<Point>& points, Color color, double thickness,
                     const Rect& clip) {
  Mask mask(clipped(*this, clip));
  const Point* previous = nullptr;
  for (const Point& point : points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    if (previous != nullptr || points.size() == 1) {
      mask.add_segment(previous != nullptr ? *previous : point, point, thickness);
    }
    previous = &point;
  }
  mask.paint(*this, color);
}

void Image::text(int x, int y, std::string_view text, Color color, Font font) {
  for (const char character : text) {
    for (int dy = 0; dy < glyph_height(font); ++dy) {
      for (int dx = 0; dx < glyph_width(font); ++dx) {
        if (glyph_pixel(font, character, dx, dy)) set(x + dx, y + dy, color);
      }
    }
    x += glyph_width(font);
  }
}

int text_width(std::string_view text, Font font) {
  return static_cast<int>(text.size()) * glyph_width(font);
}

std::string fit_text(const std::string& text, int width, Font font) {
  if (text_width(text, font) <= width) return text;
  const int characters = std::max(width / glyph_width(font) - 3, 0);
  return text.substr(0, static_cast<std::size_t>(characters)) + "...";
}

std::string png_bytes(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) ==
      0) {
    throw std::runtime_error(std::string("libpng cannot encode the image: ") + png.message);
  }
  bytes.resize(size);
  return bytes;
}

void write_png(const std::string& path, const Image& image) {
  write_file_atomically(path, png_bytes(image));
}

}  // namespace stretto::examples
