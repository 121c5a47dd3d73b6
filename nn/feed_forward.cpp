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

Tensor activate(const Tensor& x, Activation f) {
  switch (f) {
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      break;
  }
  return silu(x);
}

FeedForward::FeedForward(Options o) : options(o) {}

FeedForward::FeedForward(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {}

Tensor FeedForward::operator()(const Tensor& x) const {
  return linear2(dropout(activate(linear1(x), options.activation)));
}

std::string FeedForward::label() const {
  return str("FeedForward(", options.d_model, " → ", options.d_hidden, ", ",
             nn::name(options.activation), ")");
}

}  // namespace stretto::nn
