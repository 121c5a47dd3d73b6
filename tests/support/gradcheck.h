#pragma once

// Gradients held against central differences, in f64.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "ops/create.h"
#include "tests/support/catch.h"

namespace stretto::testing {

using TensorFunction = std::function<Tensor(const Tensors&)>;

/// x in memory of its own, column-major with gaps: no kernel can take it for contiguous.
inline Tensor strided_copy(const Tensor& x) {
  Shape strides = x.shape();
  int64_t step = 2;
  for (int64_t d = 0; d < x.dim(); ++d) {
    strides[d] = step;
    step *= std::max<int64_t>(x.size(d), 1);
  }
  Tensor y = make_view(empty({step}, options_of(x)), 1, x.shape(), strides);
  return y.copy_(x.detach());
}

/// Values in [-1, 1) that depend on `stream` and the position only.
inline Tensor fixed_noise(const Shape& shape, uint64_t stream, DType dtype = f64) {
  std::vector<double> x(size_t(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = 2.0 * uniform_from_bits(random_bits({.seed = 77, .stream = stream}, i)) - 1.0;
  return tensor(x, shape).to(dtype);
}

/// The same as a leaf that wants a gradient.
inline Tensor fixed_leaf(const Shape& shape, uint64_t stream) {
  return fixed_noise(shape, stream).set_requires_grad();
}

namespace detail {

/// Gradients of Σ y·weights as plain values; zeros where y does not depend on the input.
inline std::vector<std::vector<double>> gradients_of(const Tensor& y, const Tensors& wanted,
                                                     const Tensor& weights) {
  std::vector<std::vector<double>> values;
  Tensors grads(wanted.size());
  if (y.requires_grad()) grads = grad({y}, wanted, {weights}, {.retain_graph = true});
  for (size_t i = 0; i < wanted.size(); ++i)
    values.push_back(grads[i].defined() ? grads[i].to_vector<double>()
                                        : std::vector<double>(size_t(wanted[i].numel())));
  return values;
}

inline bool near(double a, double b, double atol, double rtol) {
  return std::fabs(a - b) <= atol + rtol * std::fabs(b) || (std::isnan(a) && std::isnan(b));
}

inline void compare(const std::string& what, const std::vector<std::vector<double>>& got,
                    const std::vector<std::vector<double>>& expected, double atol, double rtol) {
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("gradcheck: " << what << ", differentiable input " << i);
    REQUIRE(got[i].size() == expected[i].size());
    size_t first = 0, wrong = 0;
    for (size_t j = 0; j < got[i].size(); ++j)
      if (!near(got[i][j], expected[i][j], atol, rtol) && wrong++ == 0) first = j;
    if (wrong > 0)
      UNSCOPED_INFO("element " << first << " is the first of " << wrong << " to differ: got "
                               << got[i][first] << ", expected " << expected[i][first]);
    CHECK(wrong == 0);
  }
}

inline void first_order(const std::string& order, const TensorFunction& f, const Tensors& inputs) {
  constexpr double eps = 1e-6, atol = 1e-5, rtol = 1e-3;
  Tensors wanted;
  for (const Tensor& x : inputs)
    if (x.requires_grad()) {
      REQUIRE(x.dtype() == f64);
      wanted.push_back(x);
    }
  REQUIRE(!wanted.empty());

  const Tensor y = f(inputs);
  REQUIRE(y.dtype() == f64);
  const Tensor weights = fixed_noise(y.shape(), 1001);
  const auto analytic = gradients_of(y, wanted, weights);

  const auto again = gradients_of(y, wanted, weights);
  for (size_t i = 0; i < analytic.size(); ++i) {
    INFO("gradcheck: " << order << ", differentiable input " << i);
    const bool same_bits =
        analytic[i].empty() ||
        std::memcmp(analytic[i].data(), again[i].data(), analytic[i].size() * sizeof(double)) == 0;
    CHECK(same_bits);  // backward repeated
  }
  compare(order + " with a strided incoming gradient",
          gradients_of(y, wanted, strided_copy(weights)), analytic, 1e-11, 1e-11);
  const Tensor one = scalar(1, {.dtype = f64});
  Shape repeated = y.shape();
  for (int64_t& stride : repeated) stride = 0;
  const Tensor expanded = make_view(one, 0, y.shape(), repeated);
  compare(order + " with an expanded incoming gradient", gradients_of(y, wanted, expanded),
          gradients_of(y, wanted, expanded.clone()), 1e-11, 1e-11);

  // Central differences on contiguous copies, whatever the layout of the inputs.
  NoGrad guard;
  Tensors moved;
  for (const Tensor& x : inputs) {
    moved.push_back(x.defined() ? x.detach().clone() : x);
    if (x.requires_grad()) moved.back().set_requires_grad();
  }
  const std::vector<double> w = weights.to_vector<double>();
  const auto value = [&] {
    const std::vector<double> v = f(moved).to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i) sum += w[i] * v[i];
    return sum;
  };
  std::vector<std::vector<double>> numeric;
  for (const Tensor& x : moved) {
    if (!x.requires_grad()) continue;
    std::vector<double>& slopes = numeric.emplace_back();
    for (int64_t i = 0; i < x.numel(); ++i) {
      Tensor element = make_view(x.detach(), x.offset() + i, {}, {});
      const double before = element.item();
      element.fill_(before + eps);
      const double up = value();
      element.fill_(before - eps);
      const double down = value();
      element.fill_(before);
      slopes.push_back((up - down) / (2 * eps));
    }
  }
  compare(order, analytic, numeric, atol, rtol);
}

}  // namespace detail

/// Checks the gradients of a randomly weighted sum of f(inputs) for every input that requires one
/// (f64 leaves): against central differences, with strided and expanded incoming gradients, and
/// that a repeated backward gives the same bits. With `twice`, does the same to the gradients
/// themselves, as functions of the inputs and of the incoming gradient.
inline void gradcheck(const TensorFunction& f, const Tensors& inputs, bool twice = true) {
  detail::first_order("first order", f, inputs);
  if (!twice) return;
  Tensors extended = inputs;
  extended.push_back(fixed_noise(f(inputs).shape(), 1002).set_requires_grad());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const TensorFunction gradient = [&f, i](const Tensors& all) {
      GradMode on(true);
      const Tensor y = f(Tensors(all.begin(), all.end() - 1));
      Tensor g;
      if (y.requires_grad()) g = grad({y}, {all[i]}, {all.back()}, {.create_graph = true})[0];
      return g.defined() ? g : empty_like(all[i]).zero_();
    };
    detail::first_order("second order (gradient of input " + std::to_string(i) + ")", gradient,
                        extended);
  }
}

}  // namespace stretto::testing
