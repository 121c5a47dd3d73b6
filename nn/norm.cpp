#include "nn/norm.h"

#include "ops/create.h"
#include "ops/norm.h"

namespace stretto::nn {

LayerNorm::LayerNorm(Options o) : options(o) { make(); }

LayerNorm::LayerNorm(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  make();
}

void LayerNorm::make() {
  check(options.dim > 0, "LayerNorm", "dim = ", options.dim, " must be positive");
  weight = parameter("weight", ones({options.dim}));
  if (options.bias) bias = parameter("bias", zeros({options.dim}));
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  return layer_norm(x, weight, bias, options.eps);
}

std::string LayerNorm::label() const {
  return str("LayerNorm(", options.dim, options.bias ? ")" : ", no bias)");
}

RMSNorm::RMSNorm(Options o) : options(o) { make(); }

RMSNorm::RMSNorm(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  make();
}

void RMSNorm::make() {
  check(options.dim > 0, "RMSNorm", "dim = ", options.dim, " must be positive");
  weight = parameter("weight", ones({options.dim}));
}

Tensor RMSNorm::operator()(const Tensor& x) const { return rms_norm(x, weight, options.eps); }

std::string RMSNorm::label() const { return str("RMSNorm(", options.dim, ")"); }

}  // namespace stretto::nn
