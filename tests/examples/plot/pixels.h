// The pixels of a picture: its PNG, decoded by Cairo.
#pragma once

#include <string>
#include <vector>

#include "examples/plot/picture.h"

namespace stretto::examples::testing {

struct Pixels {
  int width = 0, height = 0;
  std::vector<Color> colors;  // row by row from the top left

  /// Decodes the bytes of a PNG file; throws std::runtime_error if they are invalid.
  explicit Pixels(const std::string& png);

  Color at(int x, int y) const;
  int count(Color color) const;
};

}  // namespace stretto::examples::testing
