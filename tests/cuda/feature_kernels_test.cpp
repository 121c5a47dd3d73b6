// Feature maps of linear attention on CUDA: random features, their orthogonal rows, and elu + 1,
// against the CPU.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "autograd/tape.h"
#include "nn/attention/feature_map.h"
#include "ops/attention/elu_features.h"
#include "ops/attention/random_features.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/orthogonal.h"
#include "ops/reduce.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

using Kind = RandomFeatureKind;
using Stabilizer = FeatureStabilizer;

// The features y = f(x), and dx for an incoming gradient of noise.
template <class F>
Tensors results(F f, const Tensor& given) {
  const Tensor x = given.detach().set_requires_grad();
  const Tensor y = f(x);
  const Tensor g = noise(y.shape(), 8, y.dtype()).to(y.device());
  y.backward(g);
  return {y.detach(), x.grad()};
}

struct Setup {
  int64_t heads = 2, length = 70, d = 32, w = 64;
  Kind kind = Kind::positive;
  Stabilizer stabilizer = Stabilizer::none;
  bool by_layer = false;
};

void check_setup(const Setup& s, DType t) {
  INFO(str(name(t), ": H ", s.heads, ", L ", s.length, ", D ", s.d, ", W ", s.w,
           s.kind == Kind::positive ? ", positive" : ", hyperbolic", ", stabilizer ",
           int(s.stabilizer), s.by_layer ? ", by layer" : ""));
  Tensor x = noise({2, s.length, s.heads, s.d}, 1, t).transpose(1, 2);
  if (!s.by_layer) x = x.contiguous();
  x.slice(2, 0, 1).fill_(0);  // all u are equal, so all are the maximum
  const Tensor projection = noise({s.w, s.d}, 2) * (s.stabilizer == Stabilizer::bound ? 1.5 : 1.0);
  const auto map = [&](Implementation implementation, const Tensor& w) {
    return [=](const Tensor& in) {
      return random_features(
          in, w, {.kind = s.kind, .stabilizer = s.stabilizer, .implementation = implementation});
    };
  };
  const Tensors expected = results(map(Implementation::composed, projection), x.to(f64)),
                actual = results(map(Implementation::fused, projection.to(gpu)), on_gpu(x));
  // Errors of features are relative to the largest of their row, those of gradients to the norm of
  // the gradient, as both are rounded.
  double worst = 0, off = 0, all = 0;
  for (const size_t i : {0, 1}) {
    const auto e = expected[i].to_vector<double>(), a = actual[i].to_vector<double>();
    REQUIRE(actual[i].shape() == expected[i].shape());
    const size_t width = size_t(expected[i].size(3));
    for (size_t row = 0; row < e.size(); row += width) {
      double top = 0, most = 0;
      for (size_t j = row; j < row + width; ++j) {
        top = std::max(top, std::abs(e[j]));
        most = std::max(most, std::abs(a[j] - e[j]));
        if (i == 1) off += (a[j] - e[j]) * (a[j] - e[j]), all += e[j] * e[j];
      }
      if (i == 0) worst = std::max(worst, most / top);
    }
  }
  CHECK(worst <= (t == f32 ? 1e-5 : 1.01 * unit(bf16)));
  CHECK(std::sqrt(off / all) <= (t == f32 ? 3e-6 : 5e-3));
}

}  // namespace

TEST_CASE("random features on CUDA agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const Kind kind : {Kind::positive, Kind::hyperbolic})
      for (const Stabilizer stabilizer : {Stabilizer::none, Stabilizer::own_max, Stabilizer::bound})
        for (const bool by_layer : {false, true})
          check_setup({.kind = kind, .stabilizer = stabilizer, .by_layer = by_layer}, t);
}

TEST_CASE("random features on CUDA: all widths and lengths agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const Stabilizer stabilizer : {Stabilizer::none, Stabilizer::own_max}) {
      for (const int64_t length : {1, 64, 130})
        check_setup({.heads = 3,
                     .length = length,
                     .d = 8,
                     .w = 8,
                     .kind = Kind::hyperbolic,
                     .stabilizer = stabilizer},
                    t);
      for (const int64_t w : {104, 200, 256})
        for (const int64_t d : {48, 64, 128})
          check_setup({.heads = 1, .length = 50, .d = d, .w = w, .stabilizer = stabilizer}, t);
    }
}

TEST_CASE("random features on CUDA: blocks with many tiles agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  check_setup({.heads = 100, .length = 100, .d = 8, .w = 8, .stabilizer = Stabilizer::own_max},
              f32);
  check_setup({.heads = 100, .length = 100, .d = 8, .w = 8}, bf16);
}

TEST_CASE("random features on CUDA: a NaN stays in its row; unsupported kinds are composed",
          "[cuda]") {
  NEEDS_GPU();
  Tensor x = noise({1, 1, 20, 16}, 1);
  x.slice(2, 3, 4).fill_(std::numeric_limits<double>::quiet_NaN());
  for (const Stabilizer stabilizer : {Stabilizer::none, Stabilizer::own_max}) {
    const auto y =
        random_features(x.to(gpu), noise({16, 16}, 2).to(gpu),
                        {.stabilizer = stabilizer, .implementation = Implementation::fused})
            .to_vector<double>();
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 16 == 3));
  }
  const Tensor w = noise({16, 16}, 2).to(gpu), gpu_x = noise({1, 1, 20, 16}, 1).to(gpu);
  CHECK_THROWS(random_features(
      gpu_x, w, {.kind = Kind::trigonometric, .implementation = Implementation::fused}));
  ::setenv("STRETTO_CUDA_COMPOSED", "random_features", 1);
  CHECK_THROWS(random_features(gpu_x, w, {.implementation = Implementation::fused}));
  const Tensor composed = random_features(gpu_x, w, {});
  ::unsetenv("STRETTO_CUDA_COMPOSED");
  const Tensor fused = random_features(gpu_x, w, {});
  CHECK(!same_values(composed, fused));
  const auto reference = composed.to_vector<double>();
  check_close(composed.to(cpu), fused,
              [&](size_t i) { return 1e-5 * std::max(1.0, reference[i]); });
}

TEST_CASE("features on CUDA: second derivatives agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  const auto check_twice = [](const std::function<Tensor(const Tensor&)>& f) {
    const auto twice = [&](DType t, Device device) {
      const Tensor x = noise({1, 2, 5, 8}, 1).to(t).to(device).set_requires_grad();
      const Tensor first = grad({sum(square(f(x)))}, {x}, {}, {.create_graph = true})[0];
      return grad({sum(square(first))}, {x})[0];
    };
    const Tensor expected = twice(f64, cpu), actual = twice(f32, gpu);
    const double scale = max(abs(expected)).item();
    check_close(expected, actual, [&](size_t) { return 1e-5 * scale; });
  };
  check_twice([](const Tensor& x) { return elu_features(x); });
  for (const Kind kind : {Kind::positive, Kind::hyperbolic})
    for (const Stabilizer stabilizer : {Stabilizer::none, Stabilizer::own_max, Stabilizer::bound})
      check_twice([=](const Tensor& x) {
        const Tensor w = (noise({8, 8}, 2) * 0.5).to(x.dtype()).to(x.device());
        return random_features(
            x, w,
            {.kind = kind, .stabilizer = stabilizer, .implementation = Implementation::fused});
      });
}

TEST_CASE("elu features on CUDA agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const bool by_layer : {false, true}) {
      CAPTURE(name(t), by_layer);
      Tensor x = noise({2, 33, 3, 24}, 1, t).transpose(1, 2);
      if (!by_layer) x = x.contiguous();
      const Tensors expected = results([](const Tensor&in) { return elu_features(in); }, x),
                    actual = results([](const Tensor&in) { return elu_features(in); }, on_gpu(x));
      for (const size_t i : {0, 1}) {
        const auto e = expected[i].to_vector<double>();
        check_close(expected[i], actual[i], [&](size_t j) { return 4 * unit(t) * std::abs(e[j]); });
      }
    }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto y = elu_features(tensor({nan, -inf, inf, 0.0}).to(gpu)).to_vector<double>();
  CHECK(std::isnan(y[0]));
  CHECK(y[1] == 0);
  CHECK(y[2] == inf);
  CHECK(y[3] == 1);
}

TEST_CASE("orthogonal rows on CUDA agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  // Errors of Q are rounding errors times the condition number of x, at most some thousands here.
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {2, 40}, {24, 24}, {9, 300}}) {
    INFO(n << " rows of " << m);
    const Tensor x = noise({3, m, n}, uint64_t(n), f64).transpose(1, 2);
    const Tensor expected = orthogonal_rows(x), actual = orthogonal_rows(on_gpu(x));
    check_close(expected, actual, [](size_t) { return 1e-11; });
    CHECK(same_values(actual.to(cpu), orthogonal_rows(on_gpu(x.contiguous()))));
  }
  CHECK(orthogonal_rows(empty({0, 4}, {.dtype = f64, .device = gpu})).shape() == Shape{0, 4});
  const Tensor large =
      noise({200, 200}, 3, f64);  // does not fit into shared memory: computed on the CPU
  CHECK(same_values(orthogonal_rows(large.to(gpu)), orthogonal_rows(large)));

  // Rows that are nearly parallel: orthonormal to full precision all the same.
  const Tensor parallel = ones({1, 9, 300}, {.dtype = f64}) + noise({1, 9, 300}, 4, f64) * 1e-5;
  const Tensor rows = orthogonal_rows(parallel.to(gpu)).to(cpu).select(0, 0);
  const auto products = matmul(rows, rows.transpose(0, 1)).to_vector<double>();
  for (size_t i = 0; i < products.size(); ++i)
    CHECK(std::abs(products[i] - (i % 10 == 0 ? 1 : 0)) < 1e-13);

  const auto drawn = [](Device device) {
    return nn::orthogonal_features(40, 16, {3, 4}, nn::RowNorms::chi, device);
  };
  CHECK(drawn(gpu).device() == gpu);
  check_close(drawn(cpu), drawn(gpu), [](size_t) { return 1e-10; });
}
