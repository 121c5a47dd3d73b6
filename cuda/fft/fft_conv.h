// Convolution on the device, for ops/fft/fft_conv.cpp: by sums of products, and for long rows by
// transforms in one kernel.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// y[t] = Σ_p w[w_first + p] x[x_first + t + offset − p], p < taps, over the elements
/// x[x_first + s], s < n.
struct ConvAxis {
  int64_t n, taps, x_first, w_first, offset, length;
};

/// x [.., N1, N2], w [.., P1, P2] → [.., rows.length, columns.length]; contiguous, f32 or f64.
/// Leading dimensions are broadcast.
STRETTO_KERNEL(Tensor convolve_directly(const Tensor& x, const Tensor& w, const ConvAxis& rows,
                                        const ConvAxis& columns));

/// The convolution of a row with another one, or their correlation:
///
///   y[t] = Σ_p w[w_first + p] x[x_first + t + shift ∓ p],   p < taps, 0 ≤ t < length,
///
/// with + for `correlate`, over the elements x[x_first + s], 0 ≤ s < n. Only results first
/// … last − 1 may differ from 0; a product with `coefficients` coefficients keeps them
/// apart from all others.
struct RowConvolution {
  int64_t n, taps, x_first, w_first, shift, length, first, last, coefficients;
  bool correlate = false;
};

/// True if a kernel supports this convolution.
STRETTO_KERNEL(bool convolves_rows(const RowConvolution& row, DType dtype));

/// x [.., N], w [.., P] → [leading.., length]; contiguous, f32 or f64. Leading dimensions are
/// broadcast. If a dimension is 1 in `leading` but larger in x or w, results are summed over it.
STRETTO_KERNEL(Tensor convolve_rows(const Tensor& x, const Tensor& w, const RowConvolution& row,
                                    const Shape& leading));

}  // namespace stretto::cuda
