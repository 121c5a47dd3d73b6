// Rotary positional encoding on the device.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// Rotates pairs (a, b) of the features of x [B, H, L, D], of any floating dtype, into y of its
/// shape and dtype: (a·c − b·s, b·c + a·s), or with −s in place of s if `inverse`. c and s are rows
/// of cosines and sines [L, dims/2], contiguous, of the compute type. Pair i is (2i, 2i + 1) if
/// `interleaved`, else (i, i + dims/2). Features from dims on are copied. Rows of x and y are
/// contiguous, their other strides free. Results are bit-identical to the CPU's.
STRETTO_KERNEL(void rotate(const Tensor& x, const Tensor& cosines, const Tensor& sines,
                           bool interleaved, bool inverse, const Tensor& y));

}  // namespace stretto::cuda
