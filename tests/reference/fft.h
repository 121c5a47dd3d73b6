// Fourier transforms and convolutions as their definitions write them, in long double.
#pragma once

#include "ops/fft/fft_conv.h"

namespace stretto::reference {

/// y_k = Σ_j x_j e^(−2πi jk/n), or with 1/n and the other sign: x [.., n, 2] → [.., n, 2], f64.
Tensor dft(const Tensor& x, bool inverse = false);

/// The first n/2 + 1 of them for real x [.., n] → [.., n/2 + 1, 2].
Tensor real_dft(const Tensor& x);

/// 1/n Σ_k X_k e^(2πi jk/n) over the whole spectrum, in which X_{n−k} is the conjugate of X_k and
/// bins that are their own conjugate are real: x [.., n/2 + 1, 2] → [.., n].
Tensor inverse_real_dft(const Tensor& x, int64_t n);

/// Convolution of x [.., n1, n2] with w [.., P1, P2] over two axes, or over the last one, with the
/// index of x by the definition of the padding (ops/fft/fft_conv.h).
Tensor convolution(const Tensor& x, const Tensor& w, const FftConvOptions& options);

}  // namespace stretto::reference
