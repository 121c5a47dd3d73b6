// Convolutions over one or two spatial dimensions, in the sense of neural networks: the kernel is
// not flipped (cross-correlation). C and O are the numbers of input and output channels.
//
// bf16 is computed in f32 and rounded once. The input is read as if it had zeros around
// it; for other or unequal padding, call pad() (ops/view.h) first. For long kernels of depthwise
// convolutions see fft_conv (ops/fft/fft_conv.h).
// Reference: tests/reference/convolution.cpp, convolution()
#pragma once

#include "../../core/tensor.h"
#include "size2d.h"

namespace stretto {

/// Options of conv1d().
struct Conv1dOptions {
  int64_t stride = 1;    ///< Distance of neighboring outputs in the input, at least 1.
  int64_t padding = 0;   ///< Number of zeros on both sides, at least 0.
  int64_t dilation = 1;  ///< Distance of neighboring kernel elements in the input, at least 1.
  int64_t groups = 1;    ///< Number of groups of channels; groups do not see each other.
};

/// Computes y[n, o, l] = bias[o] + Σ_{c, k} weight[o, c, k] · x[n, c, l·stride + k·dilation −
/// padding]: x [N, C, L], weight [O, C / groups, K], bias [O] or undefined → [N, O, L'] with
/// L' = ⌊(L + 2·padding − dilation·(K − 1) − 1) / stride⌋ + 1.
///
/// Output channels are split into `groups` equal groups, and c runs over the input channels of the
/// same group. All tensors have one floating-point dtype. Throws if the kernel does not fit into
/// the padded input.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Conv1dOptions options = {});

/// Options of conv2d().
struct Conv2dOptions {
  Size2d stride = 1;    ///< Distance of neighboring outputs in the input, at least 1.
  Size2d padding = 0;   ///< Number of zeros on both sides, at least 0.
  Size2d dilation = 1;  ///< Distance of neighboring kernel elements in the input, at least 1.
  int64_t groups = 1;   ///< Number of groups of channels; groups do not see each other.
};

/// Computes the same over two dimensions: x [N, C, H, W], weight [O, C / groups, KH, KW], bias [O]
/// or undefined → [N, O, H', W'].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              Conv2dOptions options = {});

}  // namespace stretto
