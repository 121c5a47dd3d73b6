#include "nn/linear.h"

#include <cmath>

#include "nn/init.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

const Linear::Options& checked(const Linear::Options& o) {
  check(o.in > 0 && o.out > 0, "Linear", "sizes in = ", o.in, " and out = ", o.out,
        " must be positive");
  return o;
}

}  // namespace

Linear::Linear(Options o) : options(checked(o)) { reset_parameters(); }

Linear::Linear(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {
  reset_parameters();
}

void Linear::reset_parameters() {
  const double bound = 1 / std::sqrt(double(options.in));
  uniform_(weight, -bound, bound);
  if (options.bias) uniform_(bias, -bound, bound);
}

Tensor Linear::operator()(const Tensor& x) const { return linear(x, weight, bias); }

std::string Linear::label() const {
  return str("Linear(", options.in, " → ", options.out, options.bias ? ")" : ", no bias)");
}

}  // namespace stretto::nn
