// Pooling over one or two spatial dimensions.
//
// Windows are placed as in a convolution: x [N, C, L] → [N, C, L'] and x [N, C, H, W] → [N, C, H',
// W'], with L' = ⌊(L + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1. x has a floating-point
// dtype. Padding may be at most half of the kernel.
// Reference: tests/reference/convolution.cpp, average_pool(), max_pool()
#pragma once

#include "../../core/tensor.h"
#include "size2d.h"

namespace stretto {

/// Options of avg_pool1d() and avg_pool2d(). In one dimension the widths count.
struct AvgPoolOptions {
  Size2d stride = 0;   ///< Distance of neighboring windows; 0: the size of the kernel.
  Size2d padding = 0;  ///< Number of zeros on both sides.
  /// Divides by the size of the kernel, also at the borders; false: by the number of elements of x
  /// in the window.
  bool count_include_pad = true;
};

/// Returns the means over windows of `kernel` elements.
Tensor avg_pool1d(const Tensor& x, Int kernel, AvgPoolOptions options = {});
/// Returns the means over windows of kernel.height × kernel.width elements.
Tensor avg_pool2d(const Tensor& x, Size2d kernel, AvgPoolOptions options = {});

/// Options of max_pool1d() and max_pool2d(). In one dimension the widths count.
struct MaxPoolOptions {
  Size2d stride = 0;    ///< Distance of neighboring windows; 0: the size of the kernel.
  Size2d padding = 0;   ///< Number of positions on both sides, which are ignored.
  Size2d dilation = 1;  ///< Distance of neighboring elements of a window.
};

/// Returns the maxima over windows of `kernel` elements, or NaN if there is a NaN. The gradient
/// goes to the first of equal values. Throws if a window has no element of x.
Tensor max_pool1d(const Tensor& x, Int kernel, MaxPoolOptions options = {});
/// Returns the maxima over windows of kernel.height × kernel.width elements, see max_pool1d().
Tensor max_pool2d(const Tensor& x, Size2d kernel, MaxPoolOptions options = {});

}  // namespace stretto
