#include "nn/norm.h"

#include "ops/create.h"
#include "ops/norm.h"

namespace stretto::nn {
namespace {

const char* name(NormKind kind) { return kind == NormKind::layer ? "LayerNorm" : "RMSNorm"; }

}  // namespace

Norm::Norm(Options o) : options(o) { make(); }

Norm::Norm(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  make();
}

void Norm::make() {
  check(options.dim > 0, name(options.kind), "dim = ", options.dim, " must be positive");
  weight = parameter("weight", ones({options.dim}));
  if (options.bias && options.kind == NormKind::layer)
    bias = parameter("bias", zeros({options.dim}));
}

Tensor Norm::operator()(const Tensor& x) const {
  return options.kind == NormKind::layer ? layer_norm(x, weight, bias, options.eps)
                                         : rms_norm(x, weight, options.eps);
}

std::string Norm::label() const {
  const bool without = options.kind == NormKind::layer && !options.bias;
  return str(name(options.kind), "(", options.dim, without ? ", no bias)" : ")");
}

}  // namespace stretto::nn
