// What a picture looks like: its PNG, decoded by Cairo.
#pragma once

#include <string>
#include <vector>

#include "examples/plot/picture.h"

namespace stretto::examples::testing {

struct Pixels {
  int width = 0, height = 0;
  std::vector<Color> colors;  // of the first row from the left, then the next row

  /// Of the bytes of a PNG file; throws std::runtime_error for what is none.
  explicit Pixels(const std::string& png);

  Color at(int x, int y) const;
  int count(Color color) const;
};

}  // namespace stretto::examples::testing
