// Discrete Fourier transforms of any length.
//
// Complex numbers are a last dimension of 2: real part, imaginary part. Forward transforms are
// plain sums, inverse ones carry the factor 1/n (NumPy's default), so that ifft(fft(x)) is x. All
// take f32, f64 and bf16 (computed in f32) and can be differentiated any number of times. A result
// has the same bits for any number of threads and whatever else is in the batch.
//
// Lengths with no prime factor above 7 are fastest; the cost is O(n log n) for all, and the
// rounding error grows as log n (bounds in ops/fft/fft_plan.h). Tables for the lengths asked for
// last are kept, at most 32 MiB of them, which memory_stats() does not count.
//
// Reference: tests/reference/fft.cpp, dft(), real_dft(), inverse_real_dft()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// y_k = Σ_j x_j e^(−2πi jk/n): x [.., n, 2] → [.., n, 2].
Tensor fft(const Tensor& x);
/// y_j = 1/n Σ_k x_k e^(2πi jk/n): x [.., n, 2] → [.., n, 2].
Tensor ifft(const Tensor& x);

/// The first half of the spectrum of real numbers, the rest being its conjugate:
/// x [.., n] → [.., n/2 + 1, 2].
Tensor rfft(const Tensor& x);
/// The n real numbers with this first half of a spectrum: x [.., n/2 + 1, 2] → [.., n]. The
/// imaginary parts of bin 0, and of bin n/2 of an even n, belong to no real number and are ignored.
Tensor irfft(const Tensor& x, Int n);

/// The same over two dimensions: x [.., n1, n2] → [.., n1, n2/2 + 1, 2], and back for n2 = n.
Tensor rfft2(const Tensor& x);
Tensor irfft2(const Tensor& x, Int n);

}  // namespace stretto
