// Resizing over one or two spatial dimensions.
// Reference: tests/reference/convolution.cpp, interpolated()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// How interpolate() computes values between the elements of its input.
enum class InterpolateMode {
  nearest,  ///< Output i is element ⌊i · size / new size⌋, PyTorch's "nearest".
  linear    ///< Linear in each spatial dimension, PyTorch's "linear" and "bilinear".
};

/// Options of interpolate().
struct InterpolateOptions {
  InterpolateMode mode = InterpolateMode::nearest;  ///< The interpolation.
  /// For InterpolateMode::linear: the first and last elements keep their positions. Otherwise the
  /// edges of the first and last elements do: output i is at (i + ½) · size / new size − ½, at
  /// least 0.
  bool align_corners = false;
};

/// Returns x [N, C, L] or [N, C, H, W], in a floating-point dtype, with other spatial sizes `size`
/// ([L'] or [H', W'], at least 1).
Tensor interpolate(const Tensor& x, const Shape& size, InterpolateOptions options = {});

}  // namespace stretto
