// Convolution on the device, for ops/fft/fft_conv.cpp: by sums of products, and of long rows by
// transforms in one kernel.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// y[t] = Σ_p w[w_first + p] x[x_first + t + offset − p], p < taps, over the x[x_first + s], s < n.
struct ConvAxis {
  int64_t n, taps, x_first, w_first, offset, length;
};

/// x [.., N1, N2], w [.., P1, P2] → [.., rows.length, columns.length]; contiguous, f32 or f64, the
/// dimensions in front broadcast.
STRETTO_KERNEL(Tensor convolve_directly(const Tensor& x, const Tensor& w, const ConvAxis& rows,
                                        const ConvAxis& columns));

/// A row's convolution with another, or its correlation:
///
///   y[t] = Σ_p w[w_first + p] x[x_first + t + shift ∓ p],   p < taps, 0 ≤ t < length,
///
/// with + for `correlate`, over the x[x_first + s] with 0 ≤ s < n. Results first … last − 1 may be
/// other than 0; `coefficients` of the product are enough to keep them from all others.
struct RowConvolution {
  int64_t n, taps, x_first, w_first, shift, length, first, last, coefficients;
  bool correlate = false;
};

/// Whether there is a kernel for it.
STRETTO_KERNEL(bool convolves_rows(const RowConvolution& row, DType dtype));

/// x [.., N], w [.., P] → [leading.., length]; contiguous, f32 or f64. The dimensions in front
/// broadcast; where `leading` has 1 and they have more, results are summed.
STRETTO_KERNEL(Tensor convolve_rows(const Tensor& x, const Tensor& w, const RowConvolution& row,
                                    const Shape& leading));

}  // namespace stretto::cuda
