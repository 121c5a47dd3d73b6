// Convolution with long filters, by the fast Fourier transform or directly.
//
// Reference: tests/reference/fft.cpp, convolution()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// What lies around x [n], filtered by w [P]:
enum class Padding {
  causal,  // zeros before it:  y[t] = Σ_p w[p] x[t − p],          n outputs
  valid,   // nothing:          y[t] = Σ_p w[p] x[t − p + P − 1],  n − P + 1 outputs, P ≤ n
  circular,  // itself, again:    y[t] = Σ_p w[p] x[(t − p) mod n],  n outputs
};

/// How it is computed. `direct` sums products, in O(n P); `fft` multiplies spectra, in
/// O(n log n); `automatic` takes what needs less time, for the result and for each gradient.
enum class ConvForm { automatic, direct, fft };

struct FftConvOptions {
  int64_t axes = 1;  // convolved axes: the last, or the last two
  Padding padding = Padding::causal;
  ConvForm implementation = ConvForm::automatic;
};

/// Convolution of x [.., n] with filters w [.., P], P longer than n too (but for `valid`), or over
/// two axes of x [.., n1, n2] with w [.., P1, P2]. The dimensions in front broadcast as in NumPy.
///
/// Both of one dtype: f32, f64 or bf16 (computed in f32). Gradients are convolutions again, so it
/// can be differentiated any number of times; the same bits for any number of threads. Only the
/// filters' gradient before it is summed over broadcast dimensions takes memory beyond the results.
Tensor fft_conv(const Tensor& x, const Tensor& w, const FftConvOptions& options = {});

}  // namespace stretto
