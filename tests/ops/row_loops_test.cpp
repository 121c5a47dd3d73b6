// Row and elementwise kernels at the lengths where their loops change [ops/rows.h], at the limits
// of the dtypes, and with gradients that are overwritten [autograd/tape.h, take_grad].
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace stretto {
namespace {

using testing::same_bits;
using testing::worst_error;

constexpr float infinity = std::numeric_limits<float>::infinity();

struct RowOp {
  const char* name;
  std::function<Tensor(const Tensor&)> run;
};

// Over rows of x [m, n], with weights that differ from element to element.
const std::vector<RowOp> row_ops{
    {"layer_norm",
     [](const Tensor& x) {
       const Tensor w = arange(x.size(-1)).to(x.dtype()) * 0.01 + 0.5;
       return layer_norm(x, w, w - 1.0);
     }},
    {"layer_norm, no weight", [](const Tensor& x) { return layer_norm(x); }},
    {"rms_norm",
     [](const Tensor& x) { return rms_norm(x, arange(x.size(-1)).to(x.dtype()) * 0.01 + 0.5); }},
    {"softmax", [](const Tensor& x) { return softmax(x); }},
    {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
    {"cross_entropy",
     [](const Tensor& x) {
       return cross_entropy(x, arange(x.size(0)) * 0, {.reduction = Reduction::none});
     }},
};

// y and dx for an incoming gradient that depends only on x and the position.
Tensors both(const RowOp& op, const Tensor& values) {
  const Tensor x = values.detach().clone().set_requires_grad();
  const Tensor y = op.run(x);
  const Tensor g = (arange(y.numel()) + 3).to(f64).reshape(y.shape());
  backward({y}, {sin(g).to(y.dtype())});
  return {y.detach(), x.grad()};
}

}  // namespace

TEST_CASE("rows: sums and maxima are right for any length", "[ops]") {
  for (int64_t n = 0; n < 200; ++n) {
    std::vector<double> x(static_cast<size_t>(n));
    double total = 0, squares = 0, top = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < n; ++i) {
      const double v = double((i * 37) % 101) - 60;  // integers: the sum is exact in any order
      x[size_t(i)] = v;
      total += v;
      squares += v * v;
      top = std::max(top, v);
    }
    const auto at = [&](int64_t i) { return x[size_t(i)]; };
    const auto square = [&](int64_t i) { return at(i) * at(i); };
    CHECK(rows::sum<double>(n, at) == total);
    CHECK(rows::sum<double>(n, square) == squares);
    CHECK(rows::max<double>(n, at) == top);
    CHECK(rows::max<float>(n, [&](int64_t i) { return float(at(i) - 100); }) == float(top - 100));
  }
}

TEST_CASE("rows: the maximum among signed zeros, infinities and NaN", "[ops]") {
  const auto largest = [](std::vector<float> x) {
    return rows::max<float>(int64_t(x.size()), [&](int64_t i) { return x[size_t(i)]; });
  };
  CHECK(largest({-infinity, -infinity}) == -infinity);
  CHECK(largest({-3, infinity, 5}) == infinity);
  CHECK(largest({-1e-45f, -1, -infinity}) == -1e-45f);
  CHECK(!std::signbit(largest({-0.0f, 0.0f})));
  CHECK(std::signbit(largest({-0.0f, -1.0f})));
  CHECK(std::isnan(largest({1, std::nanf(""), 2})));
  const float skipped = largest({1, -std::nanf(""), 2});
  CHECK((std::isnan(skipped) || skipped == 2));
}

// One row more than a chunk of threads has, of lengths around the vector lanes, and of one length
// above the f32 buffer for a bf16 row.
TEST_CASE("a row is bit-identical alone and among others, for any number of threads", "[ops]") {
  const int before = num_threads();
  for (const RowOp& op : row_ops) {
    for (const DType dtype : {f32, bf16}) {
      for (const int64_t n : {1, 15, 16, 31, 33, 63, 64, 65, 127, 129, 1025, 4097}) {
        INFO(op.name << " " << std::string(name(dtype)) << " " << n);
        const Tensor x = (randn({67, n}, RandomKey{1, uint64_t(n)}) * 3.0).to(dtype);
        set_num_threads(1);
        const Tensors one = both(op, x);
        set_num_threads(3);
        const Tensors three = both(op, x);
        CHECK(same_bits(one[0], three[0]));
        CHECK(same_bits(one[1], three[1]));
        CHECK(same_bits(op.run(x[66].unsqueeze(0))[0], one[0][66]));
        CHECK(same_bits(op.run(x.transpose(0, 1).contiguous().transpose(0, 1)), one[0]));
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("rows agree with f64 to the rounding of f32, whatever their length", "[ops]") {
  for (const RowOp& op : row_ops) {
    for (const int64_t n : {1, 17, 64, 200, 513, 5000}) {
      INFO(op.name << " " << n);
      const Tensor x = randn({5, n}, RandomKey{2, uint64_t(n)}) * 4.0;
      const Tensors narrow = both(op, x), wide = both(op, x.to(f64));
      // In the statistics, 64 partial sums of n / 64 terms, each rounded; 16 more roundings.
      const double bound = (16 + double(n) / 64) * 0x1p-24;
      CHECK(worst_error(narrow[0], wide[0]) < bound);
      const double slopes = std::max(1.0, max(abs(wide[1])).item());
      CHECK(worst_error(narrow[1], wide[1]) < bound * (n == 1 ? 1 : 8) * slopes);
      CHECK(worst_error(op.run(x.to(bf16)), narrow[0]) <
            0x1p-6);  // operands and results are rounded
    }
  }
}

TEST_CASE("activations at the limits of the dtype", "[ops]") {
  const float tiny = 1e-45f, big = 3e38f;
  const Tensor x = tensor<float>({infinity, big, 100, tiny, 0.0f, -0.0f, -tiny, -100, -big});
  const auto check_at = [&](const char* op, Tensor (*f)(const Tensor&), float low) {
    INFO(op);
    const Tensor leaf = x.clone().set_requires_grad(), y = f(leaf);
    backward({y}, {ones_like(x)});
    const std::vector<float> v = y.to_vector<float>(), d = leaf.grad().to_vector<float>();
    CHECK(v[0] == infinity);
    CHECK(v[1] == big);
    CHECK(v[2] == 100);
    CHECK(std::fabs(v[3]) <= tiny);
    CHECK(v[4] == 0);
    CHECK(v[5] == 0);
    CHECK(std::signbit(v[5]));
    for (const size_t i : {7, 8}) CHECK((v[i] <= 0 && v[i] >= low));
    for (const size_t i : {1, 2}) CHECK(d[i] == 1);
    for (const size_t i : {3, 4, 5, 6}) CHECK(d[i] == 0.5f);
    for (const size_t i : {7, 8}) CHECK(std::fabs(d[i]) <= 1e-37f);
    CHECK(std::isnan(f(tensor<float>({NAN})).item()));
  };
  check_at("gelu", gelu, 0);
  check_at("gelu_tanh", gelu_tanh, 0);
  check_at("silu", silu, -1e-37f);
}

TEST_CASE("gelu_tanh does not cancel for small results", "[ops]") {
  // Below −7, 1 + tanh is 0 in f32, and less than 1e-23 here.
  for (double v = -7; v < 0; v += 0.0625) {
    const double u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    const double exact = v / (1 + std::exp(-2 * u));
    const double got = gelu_tanh(scalar(v)).item();
    // |2u| ulps of e^2u for one ulp of u, and a few more.
    CHECK(std::fabs(got - exact) <= std::fabs(exact) * (8 + 4 * std::fabs(u)) * 0x1p-24);
  }
}

TEST_CASE("backward overwrites a gradient only if nobody else holds it", "[autograd]") {
  const int64_t m = 64, n = 96;
  const Tensor values = randn({m, n}, RandomKey{3, 0}), slope = randn({m, n}, RandomKey{4, 0});
  const Tensor w = randn({n}, RandomKey{5, 0});
  const std::vector<RowOp> ops{
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"sin", [](const Tensor& x) { return sin(x * 1e10); }},
      {"dropout",
       [](const Tensor& x) {
         return dropout(x, 0.3, RandomKey{6, 0});
       }},
      {"dropout_add",
       [&](const Tensor& x) {
         return dropout_add(x, slope, 0.3, RandomKey{6, 0});
       }},
      {"dropout_add's residual",
       [&](const Tensor& x) {
         return dropout_add(slope, x, 0.3, RandomKey{6, 0});
       }},
      {"gated_activation",
       [&](const Tensor& x) {
         return gated_activation(x, slope, Activation::silu, 0.3, {6, 0});
       }},
      {"layer_norm", [&](const Tensor& x) { return layer_norm(x, w, w); }},
      {"rms_norm", [](const Tensor& x) { return rms_norm(x); }},
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
  };
  for (const RowOp& op : ops) {
    INFO(op.name);
    const Tensor x = values.clone().set_requires_grad();
    const Tensor given = slope.clone();
    const Tensor want = grad({op.run(x)}, {x}, {given})[0];
    CHECK(same_bits(given, slope));  // the caller's gradient is unchanged
    // A gradient that only the pass holds, that of y · slope. Then one that a hook keeps.
    const Tensor y = op.run(x);
    CHECK(same_bits(grad({sum(y * slope)}, {x})[0], want));
    const Tensor kept = op.run(x);
    Tensor seen;
    kept.register_hook([&](const Tensor& g) { seen = g; });
    CHECK(same_bits(grad({sum(kept * slope)}, {x})[0], want));
    CHECK(same_bits(seen, slope));
    // Two ops that share one gradient.
    const Tensor a = op.run(x), b = op.run(x);
    CHECK(same_bits(grad({sum((a + b) * slope)}, {x})[0], want + want));
  }
}

TEST_CASE("a chain of activations holds two gradients at a time, not three", "[autograd]") {
  const Tensor x = randn({256, 1024}).set_requires_grad();
  const int64_t bytes = x.numel() * 4;
  Tensor y = x;
  for (int i = 0; i < 4; ++i) y = relu(y);
  const Tensor loss = sum(y);
  y = {};
  reset_peak_memory();
  const int64_t before = memory_stats().live;
  loss.backward();
  CHECK(memory_stats().peak - before < 2 * bytes);
}

}  // namespace stretto
