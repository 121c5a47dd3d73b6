#include "nn/gradcheck.h"

#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "gradcheck";

Tensor direction_of(const Shape& shape) {
  std::vector<double> x(size_t(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = 2.0 * uniform_from_bits(random_bits({.seed = 77, .stream = 7}, i)) - 1.0;
  return tensor(x, shape);
}

}  // namespace

void gradcheck(const Module& model, const std::function<Tensor()>& loss,
               ModuleGradcheckOptions options) {
  for (const auto& [name, p] : model.named_parameters()) {
    check(p.dtype() == f64, op, name, " is ", p, "; must be f64: convert the module");
    p.set_grad({});
  }
  const Tensor result = loss();
  const double first = result.item(), second = loss().item();
  check(first == second || (std::isnan(first) && std::isnan(second)), op,
        "the loss has different values in two calls, ", first, " and ", second,
        "; it must not depend on dropout or other random numbers");
  result.backward();
  for (const auto& [name, p] : model.named_parameters()) {
    if (!p.requires_grad()) continue;
    check(p.grad().defined(), op, name, " gets no gradient");
    check(max(abs(p.grad())).item() > 0, op, "the gradient of ", name, " is 0 everywhere");
    const Tensor direction = direction_of(p.shape());
    const double slope = sum(p.grad() * direction).item();
    const NoGrad guard;
    const auto at = [&, &value = p](double step) {
      value.add_(direction, step);
      const double y = loss().item();
      value.add_(direction, -step);
      return y;
    };
    const double difference = (at(options.step) - at(-options.step)) / (2 * options.step);
    check(std::fabs(slope - difference) <= options.atol + options.rtol * std::fabs(difference), op,
          name, ": the slope along a random direction is ", slope, " by the gradient and ",
          difference, " by a central difference");
  }
}

}  // namespace stretto::nn
