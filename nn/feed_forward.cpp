#include "nn/feed_forward.h"

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

FeedForward::FeedForward(Options o) : options(o) { make(); }

FeedForward::FeedForward(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  make();
}

void FeedForward::make() {
  if (options.gated)
    up.emplace(*this, "up", Linear::Options{options.d_model, options.d_hidden, options.bias});
}

Tensor FeedForward::operator()(const Tensor& x) const {
  if (up) return linear2(dropout(activate(linear1(x), options.activation) * (*up)(x)));
  return feed_forward(x, linear1.weight, linear1.bias, linear2.weight, linear2.bias,
                      options.activation, dropout.training() ? dropout.options.p : 0);
}

std::string FeedForward::label() const {
  return str("FeedForward(", options.d_model, " → ", options.d_hidden, ", ",
             nn::name(options.activation), options.gated ? ", gated)" : ")");
}

}  // namespace stretto::nn
