#include "tests/examples/plot/pixels.h"

#include <cairo.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace stretto::examples::testing {
namespace {

cairo_status_t read(void* from, unsigned char* to, unsigned n) noexcept {
  auto& rest = *static_cast<std::string_view*>(from);
  if (rest.size() < n) return CAIRO_STATUS_READ_ERROR;
  std::memcpy(to, rest.data(), n);
  rest.remove_prefix(n);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

Pixels::Pixels(const std::string& png) {
  std::string_view rest = png;
  const std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> image(
      cairo_image_surface_create_from_png_stream(read, &rest), cairo_surface_destroy);
  if (cairo_surface_status(image.get()) != CAIRO_STATUS_SUCCESS || !rest.empty() ||
      cairo_image_surface_get_format(image.get()) != CAIRO_FORMAT_RGB24)
    throw std::runtime_error("no picture without transparency");
  width = cairo_image_surface_get_width(image.get());
  height = cairo_image_surface_get_height(image.get());
  const unsigned char* data = cairo_image_surface_get_data(image.get());
  const int stride = cairo_image_surface_get_stride(image.get());
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::uint32_t pixel = 0;
      std::memcpy(&pixel, data + std::ptrdiff_t(y) * stride + std::ptrdiff_t(x) * 4, 4);
      colors.push_back({std::uint8_t(pixel >> 16), std::uint8_t(pixel >> 8), std::uint8_t(pixel)});
    }
}

Color Pixels::at(int x, int y) const {
  return colors.at(std::size_t(y) * std::size_t(width) + std::size_t(x));
}

int Pixels::count(Color color) const {
  return int(std::count(colors.begin(), colors.end(), color));
}

}  // namespace stretto::examples::testing
