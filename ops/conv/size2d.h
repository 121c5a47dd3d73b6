// Sizes of two spatial dimensions.
#pragma once

#include "../../core/shape.h"

namespace stretto {

/// A height and a width. One number stands for both: `{.stride = 2}`, `{.padding = {1, 0}}`.
struct Size2d {
  /// Makes height and width equal.
  template <WholeNumber T>
  constexpr Size2d(T both) : height(int64_t(both)), width(int64_t(both)) {}
  /// Makes a pair.
  constexpr Size2d(Int h, Int w) : height(h), width(w) {}

  int64_t height;  ///< Size in the second to last dimension.
  int64_t width;   ///< Size in the last dimension.
};

}  // namespace stretto
