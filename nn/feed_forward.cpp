#include "nn/feed_forward.h"

#include <cmath>
#include <utility>

#include "ops/elementwise.h"

namespace stretto::nn {

const char* name(Activation f) {
  switch (f) {
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::silu:
      break;
  }
  return "silu";
}

namespace {

FeedForward::Options checked(FeedForward::Options o) {
  check(o.d_model >= 1 && o.d_hidden >= 1, "FeedForward", "d_model ", o.d_model, ", d_hidden ",
        o.d_hidden, "; must be at least 1");
  check(!o.clamped || (o.gated && o.clamped->limit > 0 && std::isfinite(o.clamped->alpha)),
        "FeedForward", "a clamped gate with gated ", o.gated, ", limit ",
        o.clamped ? o.clamped->limit : 0, ", alpha ", o.clamped ? o.clamped->alpha : 0,
        "; accepted: gated, a positive limit, a finite alpha");
  check(!o.capped || (o.gated && !o.clamped && o.capped->gate > 0 && o.capped->up > 0),
        "FeedForward", "a capped gate with gated ", o.gated, ", caps ",
        o.capped ? o.capped->gate : 0, " and ", o.capped ? o.capped->up : 0,
        "; accepted: gated, positive caps, and no clamped gate");
  check(!o.network, "FeedForward", "a network in place of it; accepted: in a layer's options");
  return o;
}

}  // namespace

FeedForward::FeedForward(Options o) : options(checked(std::move(o))) { make(); }

FeedForward::FeedForward(Module& parent, std::string name, Options o)
    : PositionWise(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

void FeedForward::make() {
  if (options.gated)
    up.emplace(*this, "up", Linear::Options{options.d_model, options.d_hidden, options.bias});
  if (!up) return;
  pack_parameters({linear1.weight, up->weight});
  if (options.bias) pack_parameters({linear1.bias, up->bias});
}

Tensor FeedForward::hidden(const Tensor& first, const Tensor& second,
                           const ForwardContext& forward) const {
  if (!up) return dropout(activate(first, options.activation), forward);
  if (const auto& clamped = options.clamped) {
    const double limit = clamped->limit;
    const Tensor g = clamp(first, -HUGE_VAL, limit);
    return dropout(g * sigmoid(clamped->alpha * g) * (clamp(second, -limit, limit) + 1), forward);
  }
  if (const auto& capped = options.capped) {
    const auto cap = [](const Tensor& t, double c) { return tanh(t * (1 / c)) * c; };
    return dropout(cap(first, capped->gate) * sigmoid(first) * cap(second, capped->up), forward);
  }
  const double p = dropout_now(dropout, dropout.options.p);
  return gated_activation(first, second, options.activation, p,
                          p > 0 ? dropout_key(forward) : RandomKey());
}

Tensor FeedForward::operator()(const Tensor& x, const ForwardContext& forward) const {
  if (up) {
    const Tensors gate_and_up = packed_linear({&linear1, &*up}, x);
    return linear2(hidden(gate_and_up[0], gate_and_up[1], forward));
  }
  if (linear1.lora() || linear2.lora()) return linear2(hidden(linear1(x), {}, forward));
  const double p = dropout_now(dropout, dropout.options.p);
  return feed_forward(x, linear1.weight, linear1.bias, linear2.weight, linear2.bias,
                      options.activation, p, p > 0 ? dropout_key(forward) : RandomKey());
}

std::string FeedForward::label() const {
  return str("FeedForward(", options.d_model, " → ", options.d_hidden, ", ",
             options.clamped  ? "clamped silu"
             : options.capped ? "capped silu"
                              : nn::name(options.activation),
             options.gated ? ", gated)" : ")");
}

}  // namespace stretto::nn
