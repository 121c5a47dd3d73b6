// A picture: one drawing as SVG and as PNG.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::examples {

struct Color {
  uint8_t r, g, b;

  friend bool operator==(const Color&, const Color&) = default;
};

/// A drawing of `width` x `height` pixels (canvas.h): the bytes of both files, which are the same
/// for the same drawing. Letters are outlines in the SVG, so that it does not need the font; its
/// <title> and <desc> contain the texts.
struct Picture {
  int width, height;
  std::string svg, png;
};

/// Writes `path`.svg and `path`.png, each replaced atomically. Throws as write_file_atomically()
/// does; a file that cannot be written stays as it was.
void write_picture(const std::string& path, const Picture& picture);

}  // namespace stretto::examples
