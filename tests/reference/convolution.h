// Convolution, pooling and interpolation by their definitions.
#pragma once

#include "ops/conv/conv.h"
#include "ops/conv/interpolate.h"
#include "tests/support/op_table.h"

namespace stretto::reference {

/// Computes conv2d(): x [N, C, H, W], w [O, C / groups, KH, KW], bias [O] or null.
testing::Array convolution(const testing::Array& x, const testing::Array& w,
                           const testing::Array* bias, const Conv2dOptions& options);

/// Computes avg_pool2d(): x [N, C, H, W].
testing::Array average_pool(const testing::Array& x, Size2d kernel, Size2d stride, Size2d padding,
                            bool count_include_pad);

/// Computes max_pool2d(): x [N, C, H, W].
testing::Array max_pool(const testing::Array& x, Size2d kernel, Size2d stride, Size2d padding,
                        Size2d dilation);

/// Computes interpolate(): x [N, C, H, W] → [N, C, size].
testing::Array interpolated(const testing::Array& x, Size2d size,
                            const InterpolateOptions& options);

}  // namespace stretto::reference
