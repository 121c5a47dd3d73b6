// The positional encoding of Transformer-XL: projected sinusoids of relative
// positions, and two biases.
//
// Reference: tests/reference/transformer_xl.cpp, xl_terms()
#pragma once

#include <mutex>
#include <utility>

#include "../linear.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// Sinusoids of distances, one row each, for the distances past, past − 1, …, −future. A distance
/// is query position − key position. In a row all sines come first, then all cosines (R in Dai et
/// al. 2019). On the CPU the last computed table is cached, so that a model does not compute it in
/// every step.
class DistanceSinusoids {
 public:
  /// Returns [past + future + 1, d], row i for distance past − i, without a gradient. d is even and
  /// the same in every call. Throws if past or future is negative.
  Tensor operator()(int64_t past, int64_t future, int64_t d, TensorOptions options) const;

 private:
  mutable std::mutex mutex_;
  mutable Tensor kept_;
  mutable int64_t past_ = 0;  // distance of the first row of kept_
};

/// Options of RelativeSinusoid.
struct RelativeSinusoidOptions {
  int64_t clamp = 0;  ///< Distances beyond ±clamp count as ±clamp; 0: no limit.
  Tensor u = {};      ///< Parameter u of another module to share; by default a new one.
  Tensor v = {};      ///< Parameter v of another module to share, together with u.
};

/// Relative positions of Transformer-XL (Dai et al. 2019, §3.3): the score of key j for query i is
///
///     (q_i + u) · k_j + (q_i + v) · r(R_{i − j})
///
/// before scaling, with R the sinusoid of the distance, r a projection without bias, and u and v
/// [H, D] the biases of content and of position. Without a causal mask distances may be negative:
/// this is the encoding of XLNet and of the Conformer.
///
/// If a model provides ForwardContext::shared_table, the table replaces the encoding's sinusoids:
/// [n, d_model] for the distances n − 1, …, 0; keys further back share the first row. Such a table
/// requires a causal mask.
class RelativeSinusoid : public PositionalEncoding {
 public:
  using Options = RelativeSinusoidOptions;  ///< Options of the constructor.
  /// Registers r, u and v; u and v start at 0 unless shared. Throws if d_model is odd, or if only
  /// one of u and v is shared.
  RelativeSinusoid(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options&) { return {.scores = true, .relative = true}; }
  std::string label() const override;

  const HeadShape shape;  ///< Sizes of the attention.
  const Options options;  ///< As passed to the constructor.
  /// Projection of the sinusoids, d_model → H·D.
  Linear r{*this, "r", {shape.d_model, shape.n_heads* shape.d_key, false}};
  const Tensor u;  ///< Bias of content [H, D].
  const Tensor v;  ///< Bias of position [H, D].

 private:
  Tensor bias(const char* name, const Tensor& given);

  DistanceSinusoids sinusoids_;
};

/// Returns a factory of RelativeSinusoid.
inline MakePositionalEncoding relative_sinusoid(RelativeSinusoid::Options options = {}) {
  return positional_encoding<RelativeSinusoid>(std::move(options));
}

}  // namespace stretto::nn
