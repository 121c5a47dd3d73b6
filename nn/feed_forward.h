// The feed-forward network of a Transformer layer.
#pragma once

#include <optional>

#include "../ops/feed_forward.h"
#include "dropout.h"
#include "linear.h"

namespace stretto::nn {

using stretto::activate;
using stretto::Activation;

/// Returns "relu", "gelu", "gelu_tanh" or "silu".
const char* name(Activation f);

/// Options of FeedForward.
struct FeedForwardOptions {
  int64_t d_model = 0;   ///< Dimension of input and output, at least 1.
  int64_t d_hidden = 0;  ///< Dimension of the hidden layer, at least 1.
  /// Activation f. ReLU is that of the papers on relative positions; later models set another.
  Activation activation = Activation::relu;
  /// Dropout of the hidden layer. If unset: 0; in a TransformerLayer, the layer's dropout.
  std::optional<double> dropout = {};
  bool bias = true;    ///< Biases of the linear layers.
  bool gated = false;  ///< Gated linear unit.
};

/// linear2(dropout(f(linear1(x)))), position by position (Vaswani et al., 2017, §3.3).
///
/// Gated: linear2(dropout(f(gate(x)) · up(x))), a GLU (Shazeer, 2020, eq. 6). The activation is
/// applied to the gate, and linear1 has the name "gate". In T5 1.1 (gelu_tanh) gate is wi_0 and up
/// is wi_1; LLaMA has silu.
class FeedForward : public Module {
 public:
  using Options = FeedForwardOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1.
  explicit FeedForward(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  FeedForward(Module& parent, std::string name, Options options);

  /// x [.., d_model] → [.., d_model]. Under sequence parallelism each process has its own dropout.
  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// d_model → d_hidden, named "gate" if gated.
  Linear linear1{
      *this, options.gated ? "gate" : "linear1", {options.d_model, options.d_hidden, options.bias}};
  /// Dropout of the hidden layer.
  Dropout dropout{*this, "dropout", {options.dropout.value_or(0)}};
  /// d_hidden → d_model.
  Linear linear2{*this, "linear2", {options.d_hidden, options.d_model, options.bias}};
  std::optional<Linear> up;  ///< d_model → d_hidden, if gated.

 private:
  void make();
};

}  // namespace stretto::nn
