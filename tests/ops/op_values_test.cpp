// Ops of the table at the limits of the dtypes: infinities, NaN, very large and very small values,
// kinks and ties (reference/frameworks.md, C4).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/gradcheck.h"
#include "tests/support/op_check.h"

namespace stretto::testing {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> edge_values() {
  const double pi = std::numbers::pi;
  std::vector<double> values = {0.0, -0.0, inf, -inf, nan};
  for (double v : {0.001, 0.25, 0.75, 1.0, 1.5, pi / 2, pi - 1e-5, pi, pi + 1e-5, 501.0, 1001.2,
                   13437.7, 4988429.2, 1e20, 1e-20, 1e-40}) {
    values.push_back(v);
    values.push_back(-v);
  }
  return values;
}

Tensor values(const std::vector<double>& v, const Shape& shape, DType dtype = f64) {
  return tensor(v, shape).to(dtype);
}
Tensor row(const std::vector<double>& v, DType dtype = f64) {
  return values(v, {int64_t(v.size())}, dtype);
}

// The gradient of Σ y·w; w is 1 unless given.
Tensor gradient_of(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, Tensor w = {}) {
  const Tensor leaf = x.detach().set_requires_grad();
  const Tensor y = f(leaf);
  if (!w.defined()) w = ones_like(y);
  return grad({y}, {leaf}, {w})[0];
}

bool all_finite(const Tensor& x) {
  const auto v = x.to_vector<double>();
  return std::all_of(v.begin(), v.end(), [](double e) { return std::isfinite(e); });
}

bool takes_one_float(const Op& op) { return op.elementwise && op.samples[0].size() == 1; }
bool takes_two_floats(const Op& op) {
  return (op.elementwise || !op.differentiable) && op.samples[0].size() == 2 &&
         op.samples[0][0].domain == Domain::any && op.samples[0][1].domain == Domain::any;
}

template <class F>
void for_each_op(bool (*chosen)(const Op&), F f) {
  int count = 0;
  for (const Op& op : op_table()) {
    if (!chosen(op)) continue;
    INFO("op " << op.name);
    f(op);
    ++count;
  }
  CHECK(count > 10);
}

}  // namespace

TEST_CASE("functions of one tensor at the limits of the dtype", "[ops]") {
  for (DType dtype : {f64, f32, bf16}) {
    INFO(name(dtype));
    for_each_op(takes_one_float, [&](const Op& op) {
      const Tensor x = row(edge_values(), dtype);
      check_value(op, {x}, op.call({x}));
    });
  }
}

TEST_CASE("sine and cosine of any value", "[ops]") {
  // Many values, so that vectors mix small and large ones; bf16 represents all of them too.
  std::vector<double> v;
  for (int e = -3; e < 128; ++e)
    for (const double m : {1.0, -1.375, 1.8125}) v.push_back(std::ldexp(m, e));
  const Tensor exact = row(v);
  for (DType dtype : {f64, f32, bf16}) {
    INFO(name(dtype));
    const double bound = dtype == f64 ? 1e-15 : dtype == f32 ? 2e-7 : 0x1p-8;
    const Tensor x = row(v, dtype).set_requires_grad();
    const Tensor s = sin(x), c = cos(x);
    const Tensors plain = {grad({s}, {x}, {ones_like(s)}, {.retain_graph = true})[0],
                           grad({c}, {x}, {ones_like(c)}, {.retain_graph = true})[0]};
    const Tensors recorded = {
        grad({s}, {x}, {ones_like(s)}, {.retain_graph = true, .create_graph = true})[0],
        grad({c}, {x}, {ones_like(c)}, {.retain_graph = true, .create_graph = true})[0]};
    for (size_t i = 0; i < v.size(); ++i) {
      const double sine = std::sin(v[i]), cosine = std::cos(v[i]);
      const auto at = [i](const Tensor& t) { return t.to_vector<double>()[i]; };
      INFO("at " << v[i]);
      CHECK(std::fabs(at(s) - sine) <= bound);
      CHECK(std::fabs(at(c) - cosine) <= bound);
      for (const Tensors& g : {plain, recorded}) {
        CHECK(std::fabs(at(g[0]) - cosine) <= bound);
        CHECK(std::fabs(at(g[1]) + sine) <= bound);
      }
    }
  }
}

TEST_CASE("functions of two tensors for all pairs of limits", "[ops]") {
  const std::vector<double> v = edge_values();
  const auto n = int64_t(v.size());
  for (DType dtype : {f64, f32, bf16}) {
    INFO(name(dtype));
    for_each_op(takes_two_floats, [&](const Op& op) {
      const Tensor a = values(v, {n, 1}, dtype), b = values(v, {1, n}, dtype);
      check_value(op, {a, b}, op.call({a, b}));
      const Tensor full_a = a.expand({n, n}).clone(), full_b = b.expand({n, n}).clone();
      check_value(op, {full_a, full_b}, op.call({full_a, full_b}));
    });
  }
}

TEST_CASE("NaN stays in its place", "[ops]") {
  const Shape shape = {128, 128};
  for (DType dtype : {f64, f32, bf16}) {
    INFO(name(dtype));
    for_each_op([](const Op& op) { return op.elementwise && op.name != "pow 0"; },
                [&](const Op& op) {
                  Sample sample = op.samples[0];
                  for (Input& input : sample) input.shape = shape;
                  const Tensors clean = inputs_of(sample, dtype);
                  const Outcome expected = run(op, clean);
                  for (size_t which = 0; which < clean.size(); ++which) {
                    Tensors with_nan = clean;
                    std::vector<double> v = clean[which].to_vector<double>();
                    for (size_t i = 0; i < v.size(); i += 3) v[i] = nan;
                    with_nan[which] = values(v, shape, dtype);
                    const Outcome got = run(op, with_nan);
                    const auto hold = [&](const Tensor& a, const Tensor& b, bool nan_wanted) {
                      const auto p = a.to_vector<double>(), q = b.to_vector<double>();
                      int wrong = 0;
                      for (size_t i = 0; i < p.size(); ++i)
                        wrong += i % 3 == 0 ? nan_wanted && !std::isnan(p[i]) : p[i] != q[i];
                      CHECK(wrong == 0);
                    };
                    hold(got.y, expected.y, true);
                    for (size_t i = 0; i < got.gradients.size(); ++i)
                      hold(got.gradients[i], expected.gradients[i], false);
                  }
                });
  }
}

TEST_CASE("NaN affects only its own row", "[ops]") {
  const Tensor ids = arange(6);
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> ops = {
      {"sum", [](const Tensor& x) { return sum(x, {1}, true); }},
      {"mean", [](const Tensor& x) { return mean(x, {1}, true); }},
      {"var", [](const Tensor& x) { return var(x, {1}, 1, true); }},
      {"max", [](const Tensor& x) { return max(x, 1, true); }},
      {"min", [](const Tensor& x) { return min(x, 1, true); }},
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, 1, true); }},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x); }},
      {"rms_norm", [](const Tensor& x) { return rms_norm(x); }},
      {"cross_entropy",
       [&](const Tensor& x) { return cross_entropy(x, ids, {.reduction = Reduction::none}); }}};
  for (DType dtype : {f64, f32, bf16}) {
    for (const auto& [name_of_op, f] : ops) {
      for (int64_t place : {0, 15, 16, 36}) {  // first lane, end of a vector, start of one, tail
        INFO(name_of_op << " in " << name(dtype) << ", NaN in column " << place);
        const Tensor x = fixed_noise({6, 37}, 5, dtype);
        Tensor with_nan = x.clone();
        for (int64_t r : {1, 4}) with_nan.select(0, r).slice(0, place, place + 1).fill_(nan);
        const Tensor y = f(with_nan), clean = f(x);
        const Tensor g = gradient_of(f, with_nan, fixed_noise(y.shape(), 6, dtype));
        const Tensor clean_g = gradient_of(f, x, fixed_noise(y.shape(), 6, dtype));
        for (int64_t r = 0; r < 6; ++r) {
          std::string difference;
          if (r == 1 || r == 4) {
            for (double v : y.select(0, r).to_vector<double>()) CHECK(std::isnan(v));
          } else if (!same_bits(y.select(0, r), clean.select(0, r), difference) ||
                     !same_bits(g.select(0, r), clean_g.select(0, r), difference)) {
            FAIL_CHECK("row " << r << ": " << difference);
          }
        }
      }
    }
  }
}

TEST_CASE("saturated functions have finite gradients of both orders", "[ops]") {
  struct Case {
    const char* op;
    double left, right;  // slopes for very negative and very positive x
  };
  for (const Case& c :
       {Case{"sigmoid", 0, 0}, Case{"tanh", 0, 0}, Case{"softplus", 0, 1}, Case{"gelu", 0, 1},
        Case{"gelu_tanh", 0, 1}, Case{"silu", 0, 1}, Case{"erf", 0, 0}, Case{"relu", 0, 1}}) {
    const Op& op = find_op(c.op);
    for (DType dtype : {f64, f32, bf16}) {
      INFO(c.op << " in " << name(dtype));
      const std::vector<double> v = {-1e20, -10000, -1000, -500, -100,  -30,
                                     30,    100,    500,   1000, 10000, 1e20};
      const Tensor x = row(v, dtype).set_requires_grad();
      const Tensor y = op.call({x});
      CHECK(all_finite(y));
      const Tensor g = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
      CHECK(all_finite(g));
      const auto slopes = g.to_vector<double>();
      for (size_t i = 0; i < v.size(); ++i)
        CHECK(slopes[i] == Approx(v[i] < 0 ? c.left : c.right).margin(1e-11));
      const Tensor fused = gradient_of([&](const Tensor& t) { return op.call({t}); }, x);
      CHECK(all_finite(fused));
      if (!g.requires_grad()) continue;
      CHECK(all_finite(grad({sum(g)}, {x})[0]));
    }
  }
}

TEST_CASE("where gives the branch that is not selected a gradient of exactly 0", "[ops]") {
  const Tensor mask = tensor<bool>({true, false, true, false});
  const Tensor a = row({1, nan, 2, inf}).set_requires_grad();
  const Tensor b = row({nan, 3, -inf, 4}).set_requires_grad();
  const Tensor y = where(mask, a, b);
  CHECK(y.to_vector<double>() == std::vector<double>{1, 3, 2, 4});
  // A NaN in the incoming gradient does not reach it either.
  const Tensors plain = grad({y}, {a, b}, {row({5, 6, 7, 8})}, {.retain_graph = true});
  CHECK(plain[0].to_vector<double>() == std::vector<double>{5, 0, 7, 0});
  CHECK(plain[1].to_vector<double>() == std::vector<double>{0, 6, 0, 8});
  const auto gradients_for = [&](const Tensor& w) {
    return grad({y}, {a, b}, {w}, {.retain_graph = true});
  };
  CHECK(gradients_for(row({nan, 6, inf, 8}))[1].to_vector<double>() ==
        std::vector<double>{0, 6, 0, 8});
  CHECK(gradients_for(row({5, nan, 7, -inf}))[0].to_vector<double>() ==
        std::vector<double>{5, 0, 7, 0});

  const Tensor x = row({nan, 1, inf, 2});
  const auto fill = [&](const Tensor& t) { return masked_fill(t, mask, -inf); };
  CHECK(gradient_of(fill, x).to_vector<double>() == std::vector<double>{0, 1, 0, 1});
}

TEST_CASE("a softmax over only -inf is zero, and so is its gradient", "[ops]") {
  for (DType dtype : {f64, f32, bf16}) {
    for (int64_t n : {1, 3, 16, 37}) {
      INFO(name(dtype) << ", rows of " << n);
      Tensor x = fixed_noise({4, n}, 3, dtype);
      x.select(0, 1).fill_(-inf);
      x.select(0, 2).slice(0, 1).fill_(-inf);
      const Tensor w = fixed_noise({4, n}, 4, dtype);
      const Tensor leaf = x.detach().set_requires_grad();
      const Tensor y = softmax(leaf);
      CHECK(all_finite(y));
      for (double v : y.select(0, 1).to_vector<double>()) CHECK(v == 0);
      CHECK(y.select(0, 2).to_vector<double>()[0] == 1);
      for (bool recorded : {false, true}) {
        const Tensor g =
            grad({y}, {leaf}, {w}, {.retain_graph = true, .create_graph = recorded})[0];
        CHECK(all_finite(g));
        for (int64_t r : {1, 2})
          for (double v : g.select(0, r).to_vector<double>()) CHECK(v == 0);
      }
      // Along another dimension the kernel gets a transposed tensor.
      const Tensor columns = softmax(x.transpose(0, 1), 0);
      std::string difference;
      if (!same_bits(columns.transpose(0, 1).contiguous(), y.detach(), difference))
        FAIL_CHECK(difference);
      const auto lse = logsumexp(x, -1).to_vector<double>();
      CHECK(lse[1] == -inf);
      CHECK(std::isfinite(lse[0]));
      CHECK(all_finite(gradient_of([](const Tensor& t) { return logsumexp(t, -1); }, x)));
    }
  }
}

TEST_CASE("masked classes cost nothing and get no gradient", "[ops]") {
  const Tensor x = values({1, -inf, 2, -inf, -inf, 3}, {2, 3}, f32);
  const Tensor targets = tensor<int64_t>({2, 2});
  const auto loss = [&](const Tensor& t) {
    return cross_entropy(t, targets, {.reduction = Reduction::none});
  };
  const auto y = loss(x).to_vector<double>();
  CHECK(y[0] == Approx(std::log(1 + std::exp(-1.0))));
  CHECK(y[1] == 0);
  const auto g = gradient_of(loss, x).to_vector<double>();
  CHECK(g[1] == 0);
  CHECK(g[3] == 0);
  CHECK(g[5] == 0);
  CHECK(g[0] == Approx(-g[2]));
}

TEST_CASE("rows of large, small and shifted values agree with the reference", "[ops]") {
  for (const char* which : {"softmax -1", "log_softmax -1", "logsumexp -1", "layer_norm",
                            "rms_norm", "var [-1] correction 0", "sum [-1] keepdim",
                            "mean [-1] keepdim", "max -1", "cumsum -1", "cross_entropy none"}) {
    const Op& op = find_op(which);
    for (DType dtype : {f64, f32, bf16}) {
      for (const auto& [scale, shift] :
           {std::pair{1e4, 0.0}, {1e-4, 0.0}, {1.0, 1e4}, {1e-2, 1e4}, {1e15, 0.0}, {1e-18, 0.0}}) {
        INFO(which << " in " << name(dtype) << ", values of " << scale << " about " << shift);
        Tensors inputs = {(fixed_noise({5, 37}, 8) * scale + shift).to(dtype)};
        if (op.samples[0].size() == 2) inputs.push_back(arange(5));
        check_value(op, inputs, op.call(inputs));
      }
    }
  }
}

TEST_CASE("slopes at kinks and ties have fixed values", "[ops]") {
  const auto slope = [](const std::function<Tensor(const Tensor&)>& f, double at) {
    return gradient_of(f, row({at})).item();
  };
  CHECK(slope(stretto::relu, 0) == 0);
  CHECK(slope(stretto::abs, 0) == 0);
  const auto clamped = [](const Tensor& x) { return clamp(x, -1, 1); };
  CHECK(slope(clamped, -1) == 1);
  CHECK(slope(clamped, 1) == 1);
  CHECK(slope(clamped, 1.001) == 0);
  CHECK(std::isnan(stretto::relu(row({nan})).item()));
  CHECK(std::isnan(clamped(row({nan})).item()));
  const std::vector<Tensor (*)(const Tensor&, const Tensor&)> extremes{maximum, minimum};
  for (const auto f : extremes) {
    const Tensor a = row({2, 1}).set_requires_grad(), b = row({2, 1}).set_requires_grad();
    const Tensors g = grad({sum(f(a, b))}, {a, b});
    CHECK(g[0].to_vector<double>() == std::vector<double>{0.5, 0.5});
    CHECK(g[1].to_vector<double>() == std::vector<double>{0.5, 0.5});
    CHECK(slope([f](const Tensor& x) { return f(x, x); }, 3) == 1);
  }
  const Tensor tied = values({1, 3, 3, 0, 0, 0}, {2, 3});
  CHECK(gradient_of([](const Tensor& x) { return max(x, 1); }, tied).to_vector<double>() ==
        std::vector<double>{0, 1, 0, 1, 0, 0});
}

TEST_CASE("powers of zero and of negative numbers", "[ops]") {
  const auto power = [](double x, double p) { return pow(row({x}), p).item(); };
  const auto slope = [](double x, double p) {
    return gradient_of([p](const Tensor& t) { return pow(t, p); }, row({x})).item();
  };
  CHECK(power(0, 0) == 1);
  CHECK(power(0, -1) == inf);
  CHECK(power(-8, 3) == -512);
  CHECK(std::isnan(power(-8, 0.5)));
  CHECK(power(0, 2.5) == 0);
  CHECK(slope(0, 0) == 0);
  CHECK(slope(0, 1) == 1);
  CHECK(slope(0, 2) == 0);
  CHECK(slope(0, 3) == 0);
  CHECK(slope(0, 0.5) == inf);
  CHECK(slope(-2, 3) == 12);
  CHECK(slope(5, 0) == 0);
}

}  // namespace stretto::testing
