// Discrete Fourier transforms of any length.
//
// Complex numbers are a last dimension of size 2: real part, imaginary part. Forward transforms are
// plain sums; inverse transforms have the factor 1/n (NumPy's default), so that ifft(fft(x)) is x.
// All accept f32, f64 and bf16 (computed in f32) and can be differentiated any number of times. A
// result is bit-identical for any number of threads and any other entries of the batch.
//
// The cost is O(n log n) for every length; lengths without a prime factor above 7 are fastest. The
// rounding error grows as log n (bounds in ops/fft/fft_plan.h). Tables for the most recently used
// lengths are cached, at most 32 MiB, which memory_stats() does not count.
//
// Reference: tests/reference/fft.cpp, dft(), real_dft(), inverse_real_dft()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// Computes y_k = Σ_j x_j e^(−2πi jk/n): x [.., n, 2] → [.., n, 2].
Tensor fft(const Tensor& x);
/// Computes y_j = 1/n Σ_k x_k e^(2πi jk/n): x [.., n, 2] → [.., n, 2].
Tensor ifft(const Tensor& x);

/// Returns the first half of the spectrum of real x, bins 0 … n/2: x [.., n] → [.., n/2 + 1, 2].
/// The other bins are complex conjugates of these.
Tensor rfft(const Tensor& x);
/// Returns the n real values whose spectrum has the first half x: x [.., n/2 + 1, 2] → [.., n]. The
/// imaginary parts of bin 0, and of bin n/2 if n is even, are ignored.
Tensor irfft(const Tensor& x, Int n);

/// Computes rfft over the last dimension and fft over the one before: x [.., n1, n2] →
/// [.., n1, n2/2 + 1, 2].
Tensor rfft2(const Tensor& x);
/// Computes the inverse of rfft2: x [.., n1, n/2 + 1, 2] → [.., n1, n].
Tensor irfft2(const Tensor& x, Int n);

}  // namespace stretto
