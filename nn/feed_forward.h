// The feed-forward network of a Transformer layer.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "../ops/feed_forward.h"
#include "dropout.h"
#include "linear.h"

namespace stretto::nn {

using stretto::activate;
using stretto::Activation;

/// Returns "relu", "gelu", "gelu_tanh" or "silu".
const char* name(Activation f);

/// The gate of gpt-oss: with g = min(gate, limit) and u = up, clamped to −limit … limit, the hidden
/// layer is g · σ(α g) · (u + 1).
struct ClampedSwiGlu {
  double alpha = 1.702;  ///< α.
  double limit = 7;      ///< Bound of gate and up, positive.
};

/// A SwiGLU between soft caps: with cap(x, c) = c · tanh(x / c), the hidden layer is cap(gate, c_g) ·
/// σ(gate) · cap(up, c_u) (Inkling 2).
struct CappedSwiGlu {
  double gate = 4;  ///< c_g, positive.
  double up = 25;   ///< c_u, positive.
};

struct FeedForwardOptions;

/// Base class of the networks that a layer applies to each position by itself.
class PositionWise : public Module {
 public:
  using Module::Module;
  /// x [.., d_model] → [.., d_model].
  virtual Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const = 0;
};

/// A factory of such networks, as FeedForwardOptions::network accepts it.
using MakePositionWise =
    std::function<std::unique_ptr<PositionWise>(Module& parent, const FeedForwardOptions& options)>;

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
  /// With `gated`: the gate of gpt-oss in place of `activation`. Composed of several ops.
  std::optional<ClampedSwiGlu> clamped = {};
  std::optional<CappedSwiGlu> capped = {};  ///< With `gated`, likewise, and without `clamped`.
  /// In a layer: constructs another network in place of FeedForward, such as experts. d_hidden may
  /// then stay 0.
  MakePositionWise network = {};
};

/// Returns a factory that constructs N(parent, options, arguments…), for your own network. Its
/// parameters are best named as FeedForward's: PositionWise(parent, "feed_forward").
template <class N, class... Arguments>
MakePositionWise position_wise(Arguments... arguments) {
  return [=](Module& parent, const FeedForwardOptions& options) {
    return std::make_unique<N>(parent, options, arguments...);
  };
}

/// linear2(dropout(f(linear1(x)))), position by position (Vaswani et al., 2017, §3.3).
///
/// Gated: linear2(dropout(f(gate(x)) · up(x))), a GLU (Shazeer, 2020, eq. 6). The activation is
/// applied to the gate, and linear1 has the name "gate". In T5 1.1 (gelu_tanh) gate is wi_0 and up
/// is wi_1; LLaMA has silu.
class FeedForward : public PositionWise {
 public:
  using Options = FeedForwardOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1.
  explicit FeedForward(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  FeedForward(Module& parent, std::string name, Options options);

  /// x [.., d_model] → [.., d_model]. Under sequence parallelism each process has its own dropout.
  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const override;
  /// Returns the hidden layer [.., d_hidden] after dropout, from the results of linear1 and, if
  /// gated, of up.
  Tensor hidden(const Tensor& first, const Tensor& second, const ForwardContext& forward) const;
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
