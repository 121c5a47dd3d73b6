// Convolution with long filters, by the fast Fourier transform or directly.
//
// Reference: tests/reference/fft.cpp, convolution()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// The padding of x [n] before it is filtered by w [P].
enum class Padding {
  causal,    ///< Zeros before x: y[t] = Σ_p w[p] x[t − p], n outputs.
  valid,     ///< No padding: y[t] = Σ_p w[p] x[t − p + P − 1], n − P + 1 outputs, P ≤ n.
  circular,  ///< x repeats: y[t] = Σ_p w[p] x[(t − p) mod n], n outputs.
};

/// The method of computing a convolution. `direct` sums products in O(n P). `fft` multiplies
/// spectra in O(n log n). `automatic` picks the faster method, separately for the result and
/// for each gradient.
enum class ConvForm { automatic, direct, fft };

/// Options of fft_conv().
struct FftConvOptions {
  int64_t axes = 1;                               ///< Convolved axes: the last, or the last two.
  Padding padding = Padding::causal;              ///< Padding of x.
  ConvForm implementation = ConvForm::automatic;  ///< Direct or by FFT.
};

/// Convolves x [.., n] with filters w [.., P], or x [.., n1, n2] with w [.., P1, P2] over two axes.
/// P may exceed n except for `valid`. Leading dimensions broadcast as in NumPy.
///
/// x and w have one dtype: f32, f64 or bf16 (computed in f32). Gradients are convolutions
/// again, so the op can be differentiated any number of times. Results are bit-identical for
/// any number of threads. The only additional memory is the filters' gradient before it is
/// summed over broadcast dimensions.
Tensor fft_conv(const Tensor& x, const Tensor& w, const FftConvOptions& options = {});

}  // namespace stretto
