// Fourier transforms and convolutions by their definitions, in long double.
#pragma once

#include "ops/fft/fft_conv.h"

namespace stretto::reference {

/// Computes y_k = Σ_j x_j e^(−2πi jk/n): x [.., n, 2] → f64 [.., n, 2]. The inverse has the
/// opposite sign and the factor 1/n.
Tensor dft(const Tensor& x, bool inverse = false);

/// Returns the first n/2 + 1 bins of the transform of a real x [.., n] → [.., n/2 + 1, 2].
Tensor real_dft(const Tensor& x);

/// Computes 1/n Σ_k X_k e^(2πi jk/n) over the whole spectrum: x [.., n/2 + 1, 2] → real [.., n].
/// X_{n−k} is the conjugate of X_k; bins that are their own conjugate count as real.
Tensor inverse_real_dft(const Tensor& x, int64_t n);

/// Convolves x [.., n1, n2] with w [.., P1, P2] over two axes, or x [.., n] with w [.., P] over
/// one, by the definitions of the paddings in ops/fft/fft_conv.h.
Tensor convolution(const Tensor& x, const Tensor& w, const FftConvOptions& options);

}  // namespace stretto::reference
