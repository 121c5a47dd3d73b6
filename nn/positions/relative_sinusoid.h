// The positions of Transformer-XL: sinusoids of relative positions, projected, and two biases.
//
// Reference: tests/reference/transformer_xl.cpp, xl_terms()
#pragma once

#include <mutex>
#include <utility>

#include "../linear.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// Sinusoids of the lags past, past − 1, …, −future: row i is the sinusoid of lag past − i, all
/// sines, then all cosines (Dai et al. 2019, R). The longest table asked for so far is kept, so
/// that a model does not compute it in every step.
class LagSinusoids {
 public:
  /// → [past + future + 1, d], off the tape. d is even and the same in every inputs.
  Tensor operator()(int64_t past, int64_t future, int64_t d, TensorOptions options) const;

 private:
  mutable std::mutex mutex_;
  mutable Tensor kept_;
  mutable int64_t past_ = 0;  // the lag of the first row kept
};

struct RelativeSinusoidOptions {
  int64_t clamp = 0;      // > 0: lags beyond ±clamp count as that
  Tensor u = {}, v = {};  // parameters of another module, for layers that share one pair
};

/// Relative positions of Transformer-XL (Dai et al. 2019, §3.3): the score of key j for query i is
///
///     (q_i + u) · k_j + (q_i + v) · r(R_{i − j})
///
/// before scaling: R the sinusoid of the lag, r a projection without bias, u and v [H, D] biases of
/// content and of position. Lags may be negative: where attention is not causal this is the
/// position of XLNet and of the Conformer.
///
/// ForwardContext::shared_table, if a model gives one, is used in place of own sinusoids:
/// [n, d_model] for the lags n − 1, …, 0; keys further back share the first. It needs a causal
/// inputs.
class RelativeSinusoid : public PositionalEncoding {
 public:
  using Options = RelativeSinusoidOptions;
  RelativeSinusoid(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const HeadShape shape;
  const Options options;
  Linear r{*this, "r", {shape.d_model, shape.n_heads* shape.d_key, false}};
  const Tensor u, v;  // own ones start at 0

 private:
  Tensor bias(const char* name, const Tensor& given);

  LagSinusoids sinusoids_;
};

inline MakePositionalEncoding relative_sinusoid(RelativeSinusoid::Options options = {}) {
  return positional_encoding<RelativeSinusoid>(std::move(options));
}

}  // namespace stretto::nn
