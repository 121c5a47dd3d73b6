#include "nn/dropout.h"

#include "ops/dropout.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

Dropout::Options checked(Dropout::Options o) {
  check(o.p >= 0 && o.p <= 1, "Dropout", "p = ", o.p, " is not a probability");
  return o;
}

}  // namespace

Dropout::Dropout(Options o) : options(checked(o)) {}

Dropout::Dropout(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {}

Tensor Dropout::operator()(const Tensor& x) const {
  return training() && options.p > 0 ? dropout(x, options.p) : x;
}

Tensor Dropout::onto(const Tensor& residual, const Tensor& x) const {
  return training() && options.p > 0 ? dropout_add(x, residual, options.p) : residual + x;
}

std::string Dropout::label() const { return str("Dropout(", options.p, ")"); }

}  // namespace stretto::nn
