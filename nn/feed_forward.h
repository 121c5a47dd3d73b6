// The position-wise network of a Transformer layer.
#pragma once

#include <optional>

#include "../ops/feed_forward.h"
#include "dropout.h"
#include "linear.h"

namespace stretto::nn {

using stretto::activate;
using stretto::Activation;

/// "relu", "gelu", "gelu_tanh", "silu".
const char* name(Activation f);

struct FeedForwardOptions {
  int64_t d_model = 0;
  int64_t d_hidden = 0;
  Activation activation = Activation::relu;
  std::optional<double> dropout = {};  ///< 0, if not given.
  bool bias = true;
  bool gated = false;
};

/// linear2(dropout(f(linear1(x)))): x [.., d_model] → [.., d_model] through d_hidden (Vaswani et
/// al., 2017, §3.3). Gated: linear2(dropout(f(gate(x)) · up(x))), a GLU (Shazeer, 2020, eq. 6; T5
/// 1.1 with gelu_tanh, where gate is wi_0 and up wi_1; LLaMA with silu). The activation is on the
/// gate: linear1 then has the name "gate".
class FeedForward : public Module {
 public:
  using Options = FeedForwardOptions;
  explicit FeedForward(Options options);
  FeedForward(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const;
  std::string label() const override;

  const Options options;
  Linear linear1{
      *this, options.gated ? "gate" : "linear1", {options.d_model, options.d_hidden, options.bias}};
  Dropout dropout{*this, "dropout", {options.dropout.value_or(0)}};
  Linear linear2{*this, "linear2", {options.d_hidden, options.d_model, options.bias}};
  std::optional<Linear> up;  // where gated

 private:
  void make();
};

}  // namespace stretto::nn
