// A picture as it is kept: the same drawing as SVG and as PNG.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::examples {

struct Color {
  uint8_t r, g, b;

  friend bool operator==(const Color&, const Color&) = default;
};

/// A drawing of `width` x `height` pixels (canvas.h): the bytes of both files. The same drawing has
/// the same bytes. Letters are outlines in the SVG, so that it looks the same without our font; its
/// <title> and <desc> hold what is written in it.
struct Picture {
  int width, height;
  std::string svg, png;
};

/// Writes `path`.svg and `path`.png, each replaced in one go. Throws as write_file_atomically();
/// a file that cannot be written stays as it was.
void write_picture(const std::string& path, const Picture& picture);

}  // namespace stretto::examples
