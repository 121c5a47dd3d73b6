// Convolution by sums of products on the device, as in ops/fft/fft_conv.cpp.
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

}  // namespace stretto::cuda
