// Tables of sines and cosines: the fixed positional encodings of the Transformer and its variants.
//
// Reference: tests/reference/transformer_xl.cpp, distance_sinusoid()
#pragma once

#include <vector>

#include "../../core/tensor.h"

namespace stretto::nn {

/// Layouts of the columns of a sinusoid of dimension D at position t.
enum class Sinusoid {
  /// Columns 2i, 2i + 1 = sin, cos(t · 10000^(−2i/D)); an odd D ends with a sine
  /// (Vaswani et al. 2017, §3.5).
  interleaved,
  /// [all sines | all cosines] of the same frequencies; D must be even
  /// (Transformer-XL, Dai et al. 2019).
  concatenated,
  /// [sines | cosines], D/2 each, of frequencies 10000^(−i / (D/2 − 1)); an odd D ends with a
  /// column of zeros (the code of Vaswani et al. and of the Music Transformer).
  tensor2tensor
};

/// Returns one row per position, [n, d], computed in f64.
Tensor sinusoids(const std::vector<double>& positions, int64_t d, Sinusoid layout,
                 TensorOptions options = {});

/// Returns the rows of the n positions first, first + step, …, [n, d], computed in f64.
Tensor sinusoids(int64_t n, int64_t d, Sinusoid layout, int64_t first = 0, int64_t step = 1,
                 TensorOptions options = {});

}  // namespace stretto::nn
