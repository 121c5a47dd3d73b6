#include "nn/linear.h"

#include <cmath>

#include "nn/init.h"
#include "ops/matmul.h"

namespace stretto::nn {

Linear::Linear(Options o) : options(o) { make(); }

Linear::Linear(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  make();
}

void Linear::make() {
  check(options.in > 0 && options.out > 0, "Linear", "sizes in = ", options.in,
        " and out = ", options.out, " must be positive");
  const double bound = 1 / std::sqrt(double(options.in));
  weight = parameter("weight", empty({options.out, options.in}));
  uniform_(weight, -bound, bound);
  if (!options.bias) return;
  bias = parameter("bias", empty({options.out}));
  uniform_(bias, -bound, bound);
}

Tensor Linear::operator()(const Tensor& x) const { return linear(x, weight, bias); }

std::string Linear::label() const {
  return str("Linear(", options.in, " → ", options.out, options.bias ? ")" : ", no bias)");
}

}  // namespace stretto::nn
