// The short convolution in front of a linear attention: each feature is filtered along the
// sequence.
//
// Reference: tests/reference/gated_layers.cpp, short_convolution()
#pragma once

#include <optional>

#include "../../core/formulas/attention_mask.h"
#include "../../ops/create.h"
#include "../linear.h"

namespace stretto::nn {

/// Options of ShortConvolution.
struct ShortConvolutionOptions {
  int64_t features = 0;  ///< C, at least 1.
  int64_t taps = 4;      ///< T, the length of the filters, at least 1.
  bool bias = false;     ///< Adds a bias.
  /// Adds the input to the sum in place of SiLU: y_t = x_t + Σ_j … (Inkling).
  bool residual = false;
  /// With `residual`: divides y_t by √(T + 1), or √(2T + 1) with `groups`, so that its variance is
  /// about that of x (Inkling 2).
  bool scaled = false;
  /// > 0: the filters of position t are w plus a projection of a second input at t, d_input →
  /// groups · T, which the features of each of this many groups share (Inkling 2).
  int64_t groups = 0;
  int64_t d_input = 0;  ///< Dimension of that input.
};

/// A causal convolution with one filter per feature, followed by SiLU (Fu et al. 2023; Gu & Dao
/// 2023): y_t = silu(Σ_j w_j x_{t − T + 1 + j} + bias). Weights start uniform in ±1/√T, as in
/// PyTorch's Conv1d.
class ShortConvolution : public Module {
 public:
  using Options = ShortConvolutionOptions;  ///< Options of the constructor.
  /// Constructs a child of `parent`. Throws if a size is below 1.
  ShortConvolution(Module& parent, std::string name, Options options);
  /// x [B, N, C] → [B, N, C], with the second input [B, N, d_input] if there are groups. Padding of
  /// the mask counts as zeros, and a segment does not see another one. `history` [B, T − 1, C],
  /// unless null, has the inputs before x, zeros if undefined, and is replaced by the last ones.
  Tensor operator()(const Tensor& x, const AttentionMask& mask = {}, Tensor* history = nullptr,
                    const Tensor& input = {}) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  const Tensor weight = parameter("weight", empty({options.features, options.taps}));  ///< [C, T].
  /// [C], initially 0; undefined without a bias.
  const Tensor bias = options.bias ? parameter("bias", zeros({options.features})) : Tensor();
  /// Projection of the second input, with `groups`; output g · T + i is for x_{t − i}.
  std::optional<Linear> filters;
};

}  // namespace stretto::nn
