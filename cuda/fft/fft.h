// Discrete Fourier transforms of rows on the device, of any length, as in ops/fft/fft_plan.h;
// contiguous, f32 or f64. Results are written to y, whose shape determines the length.
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// scale · Σ x e^(∓2πi jk/n): x, y [.., n, 2].
STRETTO_KERNEL(void fft_complex(const Tensor& x, const Tensor& y, bool inverse, double scale));
/// x [.., n] → y [.., n/2 + 1, 2], bins 0 and n/2 times `edge`, the others times `middle`.
STRETTO_KERNEL(void fft_to_bins(const Tensor& x, const Tensor& y, double edge, double middle));
/// Its transpose: x [.., n/2 + 1, 2] → y [.., n].
STRETTO_KERNEL(void fft_from_bins(const Tensor& x, const Tensor& y, double edge, double middle));
/// The products of complex elements a [.., 2] and b [.., 2], with broadcasting; any strides that
/// keep the two parts of an element adjacent.
STRETTO_KERNEL(Tensor complex_product(const Tensor& a, const Tensor& b));

}  // namespace stretto::cuda
