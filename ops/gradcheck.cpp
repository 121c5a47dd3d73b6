#include "ops/gradcheck.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "ops/create.h"

namespace stretto {
namespace {

constexpr const char* op = "gradcheck";

using Function = std::function<Tensor(const Tensors&)>;
using Values = std::vector<double>;

// Values in [-1, 1) that depend on `stream` and the position only.
Tensor noise(const Shape& shape, uint64_t stream) {
  Values x(size_t(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = 2.0 * uniform_from_bits(random_bits({.seed = 77, .stream = stream}, i)) - 1.0;
  return tensor(x, shape);
}

// A copy of x, column-major with gaps, so that no kernel can treat it as contiguous.
Tensor strided_copy(const Tensor& x) {
  Shape strides = x.shape();
  int64_t step = 2;
  for (int64_t d = 0; d < x.dim(); ++d) {
    strides[d] = step;
    step *= std::max<int64_t>(x.size(d), 1);
  }
  return make_view(empty({step}, options_of(x)), 1, x.shape(), strides).copy_(x.detach());
}

// Returns the values of the gradients of Σ y·weights; zeros for inputs that y does not depend on.
std::vector<Values> gradients_of(const Tensor& y, const Tensors& leaves, const Tensor& weights) {
  std::vector<Values> values;
  Tensors grads(leaves.size());
  if (y.requires_grad()) grads = grad({y}, leaves, {weights}, {.retain_graph = true});
  for (size_t i = 0; i < leaves.size(); ++i)
    values.push_back(grads[i].defined() ? grads[i].to_vector<double>()
                                        : Values(size_t(leaves[i].numel())));
  return values;
}

bool near(double a, double b, double atol, double rtol) {
  return std::fabs(a - b) <= atol + rtol * std::fabs(b) || (std::isnan(a) && std::isnan(b));
}

void compare(const std::string& what, const std::vector<Values>& got,
             const std::vector<Values>& expected, double atol, double rtol) {
  for (size_t i = 0; i < got.size(); ++i) {
    size_t first = 0, wrong = 0;
    for (size_t j = 0; j < got[i].size(); ++j)
      if (!near(got[i][j], expected[i][j], atol, rtol) && wrong++ == 0) first = j;
    if (wrong > 0)
      fail(op, what, ", differentiable input ", i, ": element ", first, " is the first of ", wrong,
           " to differ; got ", got[i][first], ", expected ", expected[i][first]);
  }
}

// The derivatives of Σ f·weights by central differences, on contiguous copies of the inputs.
std::vector<Values> differences(const Function& f, const Tensors& inputs, const Tensor& weights,
                                double step) {
  const NoGrad guard;
  Tensors moved;
  for (const Tensor& x : inputs) {
    moved.push_back(x.defined() ? x.detach().clone() : x);
    if (x.requires_grad()) moved.back().set_requires_grad();
  }
  const Values w = weights.to_vector<double>();
  const auto value = [&] {
    const Values v = f(moved).to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i) sum += w[i] * v[i];
    return sum;
  };
  std::vector<Values> derivatives;
  for (const Tensor& x : moved) {
    if (!x.requires_grad()) continue;
    Values& values = derivatives.emplace_back();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const Tensor element = make_view(x.detach(), x.offset() + i, {}, {});
      const double before = element.item();
      element.fill_(before + step);
      const double up = value();
      element.fill_(before - step);
      const double down = value();
      element.fill_(before);
      values.push_back((up - down) / (2 * step));
    }
  }
  return derivatives;
}

void check_once(const std::string& order, const Function& f, const Tensors& inputs,
                const GradcheckOptions& options) {
  Tensors leaves;
  for (const Tensor& x : inputs)
    if (x.requires_grad()) {
      check(x.dtype() == f64 && x.is_leaf(), op, "an input is ", x,
            "; inputs that require gradients must be f64 leaves");
      leaves.push_back(x);
    }
  check(!leaves.empty(), op, "no input requires a gradient");
  const Tensor y = f(inputs);
  check(y.defined() && y.dtype() == f64, op, "the function returned ", y, "; must be f64");

  const Tensor weights = noise(y.shape(), 1001);
  const std::vector<Values> analytic = gradients_of(y, leaves, weights);
  const std::vector<Values> again = gradients_of(y, leaves, weights);
  for (size_t i = 0; i < analytic.size(); ++i)
    check(analytic[i].empty() || std::memcmp(analytic[i].data(), again[i].data(),
                                             analytic[i].size() * sizeof(double)) == 0,
          op, order, ", differentiable input ", i,
          ": a repeated backward pass is not bit-identical");
  compare(order + " with a strided incoming gradient",
          gradients_of(y, leaves, strided_copy(weights)), analytic, 1e-11, 1e-11);
  const Tensor one = scalar(1, {.dtype = f64});
  Shape repeated = y.shape();
  for (int64_t& stride : repeated) stride = 0;
  const Tensor expanded = make_view(one, 0, y.shape(), repeated);
  compare(order + " with an expanded incoming gradient", gradients_of(y, leaves, expanded),
          gradients_of(y, leaves, expanded.clone()), 1e-11, 1e-11);
  compare(order, analytic, differences(f, inputs, weights, options.step), options.atol,
          options.rtol);
}

}  // namespace

void gradcheck(const Function& f, const Tensors& inputs, GradcheckOptions options) {
  check_once("first order", f, inputs, options);
  if (!options.twice) return;
  Tensors extended = inputs;
  extended.push_back(noise(f(inputs).shape(), 1002).set_requires_grad());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const Function gradient = [&f, i](const Tensors& all) {
      const GradMode on(true);
      const Tensor y = f(Tensors(all.begin(), all.end() - 1));
      Tensor g;
      if (y.requires_grad()) g = grad({y}, {all[i]}, {all.back()}, {.create_graph = true})[0];
      return g.defined() ? g : empty_like(all[i]).zero_();
    };
    check_once(str("second order (gradient of input ", i, ")"), gradient, extended, options);
  }
}

}  // namespace stretto
