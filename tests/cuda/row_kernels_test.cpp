// Sums, matrix products, softmax and skew: CPU against CUDA.
#include <cmath>
#include <vector>

#include "cuda/matmul.h"
#include "cuda/reduce.h"
#include "cuda/runtime/index.h"
#include "cuda/softmax.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

// ---- sums ----

namespace {

void compare_sum(const Tensor& x, const Shape& dims) {
  CAPTURE(str(x), str(x.strides()), str(dims));
  auto reference = [&](const Tensor& v) { return dims.empty() ? v : sum(v, dims, true); };
  const Tensor exact = reference(x.to(f64)), size = reference(abs(x.to(f64)));
  const cuda::SumPlan plan = cuda::plan_sum(x.shape(), x.strides(), dims);
  const double depth = double(plan.chunk) / 8 + 16 + double(plan.splits);
  const double u = unit(x.dtype() == f64 ? f64 : f32);
  const auto v = exact.to_vector<double>(), s = size.to_vector<double>();
  const Tensor y = cuda::sum(on_gpu(x), dims, true);
  CHECK(y.dtype() == x.dtype());
  auto allowed = [&](size_t i) {
    // The f64 sum on the CPU has errors, too.
    return s[i] * u * (x.dtype() == f64 ? depth + double(plan.count) : depth) +
           (x.dtype() == bf16 ? std::abs(v[i]) * 1.01 * unit(bf16) : 0);
  };
  check_close(exact, y, allowed);
  const Tensor again = cuda::sum(on_gpu(x), dims, true);
  CHECK(same_values(y, again));
  Shape dropped;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) dropped.push_back(x.size(d));
  CHECK(cuda::sum(on_gpu(x), dims, false).shape() == dropped);
}

}  // namespace

TEST_CASE("sums agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 300;
  for (const DType t : floating) {
    compare_sum(noise({1}, ++stream, t), {0});
    compare_sum(noise({31}, ++stream, t), {0});
    compare_sum(noise({1000}, ++stream, t), {0});
    compare_sum(noise({100003}, ++stream, t), {0});    // rows in chunks
    compare_sum(noise({300, 129}, ++stream, t), {1});  // a warp per row
    compare_sum(noise({40, 3001}, ++stream, t), {1});  // a block per row
    compare_sum(noise({3001, 40}, ++stream, t), {0});  // columns in chunks
    compare_sum(noise({50, 4000}, ++stream, t), {0});
    compare_sum(noise({5, 7, 9, 11}, ++stream, t), {1, 3});
    compare_sum(noise({5, 7, 9, 11}, ++stream, t), {0, 2});
    compare_sum(noise({5, 7, 9, 11}, ++stream, t), {0, 1, 2, 3});
    compare_sum(noise({5, 7}, ++stream, t), {});
  }
  const Tensor x = noise({40, 50, 60}, ++stream);
  compare_sum(x.transpose(0, 2), {0});
  compare_sum(x.transpose(0, 2), {2});
  compare_sum(x.transpose(0, 1).slice(2, 1, 60, 3), {0, 2});
  compare_sum(x.select(0, 1).expand({33, 50, 60}), {0});
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0}}) {
    const Tensor none = zeros(shape);
    for (int64_t d = 0; d < shape.dim(); ++d)
      check_equal(sum(none, {d}), cuda::sum(none.to(gpu), {d}, false));
  }
  check_equal(tensor(std::vector<double>{inf}, {1}).to(f32),
              cuda::sum(tensor(std::vector<double>{1, inf}, {2}).to(f32).to(gpu), {0}, true));
}

TEST_CASE("large sums agree with the CPU", "[cuda][large]") {
  NEEDS_GPU();
  uint64_t stream = 350;
  compare_sum(noise({65537, 3}, ++stream), {1});
  compare_sum(noise({65537, 3}, ++stream), {0});
  compare_sum(noise({65537, 33}, ++stream), {1});
  compare_sum(noise({4100, 1030}, ++stream), {1});
  compare_sum(noise({2, 140000}, ++stream), {0});  // more tiles of columns than blocks
}

// ---- matrix products ----

TEST_CASE("matrix products agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  struct Sizes {
    Shape batch;
    int64_t m, k, n;
    bool shared;
  };
  const Sizes all[] = {
      {{}, 1, 1, 1, false},      {{}, 3, 5, 7, false},      {{}, 64, 33, 17, false},
      {{}, 129, 257, 65, false}, {{4}, 5, 6, 7, false},     {{2, 3}, 9, 1, 4, false},
      {{4}, 5, 6, 7, true},      {{2, 3}, 9, 8, 4, true},   {{}, 0, 3, 2, false},
      {{}, 3, 0, 2, false},      {{}, 3, 2, 0, false},      {{0}, 3, 2, 4, false},
      {{3}, 4, 0, 5, true},      {{70000}, 2, 3, 2, false}, {{}, 1, 300, 1, false}};
  uint64_t stream = 400;
  for (const Sizes& s : all) {
    for (const DType t : floating) {
      auto shape = [](const Shape& batch, int64_t rows, int64_t columns) {
        Shape result = batch;
        result.push_back(rows);
        result.push_back(columns);
        return result;
      };
      const Tensor a = noise(shape(s.batch, s.m, s.k), ++stream, t);
      const Tensor b = noise(shape(s.shared ? Shape{} : s.batch, s.k, s.n), ++stream, t);
      const Tensor exact = matmul(a.to(f64), b.to(f64));
      const Tensor size = matmul(abs(a.to(f64)), abs(b.to(f64)));
      const auto v = exact.to_vector<double>(), sz = size.to_vector<double>();
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          CAPTURE(str(a), str(b), ta, tb);
          const auto to_gpu = [&](const Tensor& x,
                                  bool transposed) {  // padded by a row and 3 columns
            const Tensor flat = (transposed ? x.transpose(-1, -2) : x).to(gpu);
            const Tensor wide = pad(pad(flat, -2, 0, 1), -1, 0, 3);
            const Tensor y = wide.slice(-2, 0, flat.size(-2)).slice(-1, 0, flat.size(-1));
            return transposed ? y.transpose(-1, -2) : y;
          };
          const Tensor ga = to_gpu(a, ta);
          const Tensor gb = broadcast_to(to_gpu(b, tb), shape(s.batch, s.k, s.n));
          REQUIRE(cuda::are_matrices(ga));
          REQUIRE(cuda::are_matrices(gb));
          const Tensor y = cuda::matmul(ga, gb);
          CHECK(y.dtype() == t);
          const double k = double(s.k + 1);
          const auto allowed = [&](size_t i) {
            return sz[i] * k * (t == f64 ? 2 * unit(f64) : unit(f32)) +
                   (t == bf16 ? std::abs(v[i]) * 1.01 * unit(bf16) : 0);
          };
          check_close(exact, y, allowed);
          CHECK(same_values(y, cuda::matmul(ga, gb)));
          // cuBLAS may sum in another order for another layout, so results are not bit-identical.
          check_close(exact, cuda::matmul(ga.contiguous(), gb), allowed);
        }
      }
    }
  }
  // Not TF32: 1 + 2^-12 would be rounded to 1.
  const Tensor a = full({16, 16}, 1 + std::ldexp(1.0, -12));
  const Tensor i = eye(16);
  check_equal(a, cuda::matmul(a.to(gpu), i.to(gpu)));
  const Tensor x = noise({4, 3, 6, 8}, 499).to(gpu);
  CHECK_FALSE(cuda::are_matrices(x.slice(3, 0, 8, 2)));
  CHECK_FALSE(cuda::are_matrices(x.slice(2, 0, 1).expand({4, 3, 6, 8})));
  CHECK_FALSE(cuda::are_matrices(x.transpose(1, 2).slice(1, 0, 3)));
  CHECK_FALSE(cuda::are_matrices(x.slice(1, 0, 2)));
}

// ---- softmax ----

namespace {

void compare_softmax(const Shape& shape, DType t, uint64_t stream) {
  CAPTURE(str(shape), name(t));
  const Tensor x = mul(noise(shape, stream++), 3).to(t);
  const Tensor exact = softmax(x.to(f64));
  const auto v = exact.to_vector<double>();
  const double width = double(shape.back());
  // x − max, exp and the division have an error of about |x − max| + 3 units (|x| < 20), the sum
  // of its depth.
  const double relative = (40 + 4 + width / 32 + 8) * unit(t == f64 ? f64 : f32) +
                          (t == f64 ? 40 * unit(f64) : 0) + (t == bf16 ? 1.01 * unit(bf16) : 0);
  const Tensor y = softmax(x.to(gpu));
  check_close(exact, y, [&](size_t i) { return v[i] * relative + 1e-38; });

  const Tensor p = exact.to(t), g = noise(shape, stream++, t);
  const Tensor p64 = p.to(f64), g64 = g.to(f64);
  const Tensor dot = sum(p64 * g64, {-1}, true), dot_size = sum(p64 * abs(g64), {-1}, true);
  const Tensor expected = p64 * (g64 - dot);
  const auto size = (p64 * (abs(g64) + dot_size)).to_vector<double>();
  check_close(expected, cuda::softmax_backward(p.to(gpu), g.to(gpu), false), [&](size_t i) {
    return size[i] * ((width / 32 + 12) * 2 * unit(t == f64 ? f64 : f32) +
                      (t == bf16 ? 1.01 * unit(bf16) : 0)) +
           1e-38;
  });
}

void compare_log_softmax(const Shape& shape, DType t, uint64_t stream) {
  CAPTURE(str(shape), name(t));
  const Tensor x = mul(noise(shape, stream++), 3).to(t);
  const Tensor exact = log_softmax(x.to(f64));
  const auto v = exact.to_vector<double>();
  const double width = double(shape.back()), u = unit(t == f64 ? f64 : f32),
               stored = t == bf16 ? 1.01 * unit(bf16) : 0;
  // The error of log Σ is the relative error of Σ (above); both differences add their rounding.
  check_close(exact, log_softmax(x.to(gpu)), [&](size_t i) {
    return (40 + 4 + width / 32 + 8) * u + std::abs(v[i]) * (4 * u + stored);
  });

  const Tensor y = exact.to(t), g = noise(shape, stream++, t);
  const Tensor power = exp(y.to(f64)), g64 = g.to(f64);
  const Tensor expected = g64 - power * sum(g64, {-1}, true);
  const auto size = (abs(g64) + power * sum(abs(g64), {-1}, true)).to_vector<double>();
  check_close(expected, cuda::softmax_backward(y.to(gpu), g.to(gpu), true),
              [&](size_t i) { return size[i] * ((width / 32 + 12) * 2 * u + stored) + 1e-38; });
}

}  // namespace

TEST_CASE("softmax, log_softmax and their gradients agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 500;
  for (const Shape& shape :
       {Shape{1}, Shape{0, 4}, Shape{4, 0}, Shape{3, 5}, Shape{17, 31}, Shape{5, 32},
        Shape{2, 3, 33}, Shape{5, 516}, Shape{9, 1024}, Shape{9, 1025}, Shape{3, 1032},
        Shape{3, 5000}, Shape{3, 5001}, Shape{2, 8208}})
    for (const DType t : floating) {
      compare_softmax(shape, t, stream += 2);
      compare_log_softmax(shape, t, stream);
    }
}

TEST_CASE("softmax of many or long rows agrees with the CPU", "[cuda][large]") {
  NEEDS_GPU();
  compare_softmax({65537, 3}, f32, 550);
  compare_softmax({4100, 1030}, f32, 552);
}

TEST_CASE("softmax agrees with the CPU for infinities, NaN and huge values", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t width : {4, 2000}) {
    for (const DType t : floating) {
      Tensor x = zeros({7, width}, {.dtype = t});
      x[0].fill_(-inf);              // all masked: zeros
      x[1].slice(0, 1).fill_(-inf);  // one key
      x[2].fill_(3e38);              // no overflow
      x[3].slice(0, 0, 1).fill_(std::nan(""));
      x[4].fill_(-inf);
      x[4].slice(0, 1, 2).fill_(std::nan(""));  // NaN among −inf stays NaN
      x[5].slice(0, 0, 1).fill_(inf);
      x[6].fill_(-3e38);
      CAPTURE(width, name(t));
      const Tensor expected = softmax(x);
      const auto y = softmax(x.to(gpu)).to_vector<double>();
      const auto e = expected.to_vector<double>();
      for (int64_t r = 0; r < 7; ++r) {
        CAPTURE(r);
        for (int64_t c : {int64_t(0), int64_t(1), width - 1}) {
          const size_t at = size_t(r * width + c);
          CHECK(std::isnan(y[at]) == std::isnan(e[at]));
          if (!std::isnan(e[at])) CHECK(y[at] == Approx(e[at]).epsilon(2 * unit(t)));
        }
      }
      CHECK(y[0] == 0);
      CHECK(y[size_t(width)] == 1);
      CHECK(std::isnan(y[size_t(4 * width)]));
    }
  }
}

// ---- skew ----

TEST_CASE("skew and unskew are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  struct Sizes {
    Shape shape;
    int64_t width;
  };
  uint64_t stream = 600;
  for (const Sizes& s : std::vector<Sizes>{{{4, 4}, 4},
                                           {{1, 1}, 1},
                                           {{3, 7}, 5},
                                           {{5, 3}, 9},
                                           {{2, 3, 6, 11}, 6},
                                           {{2, 5, 40}, 33},
                                           {{0, 4}, 3},
                                           {{3, 0}, 4},
                                           {{3, 4}, 0},
                                           {{0, 2, 3}, 4},
                                           {{65537, 1, 3}, 2},
                                           {{3, 257, 513}, 257}}) {
    for (const DType t : floating) {
      CAPTURE(str(s.shape), s.width, name(t));
      const Tensor x = noise(s.shape, ++stream, t);
      check_equal(skew(x, s.width), skew(x.to(gpu), s.width));
      check_equal(unskew(x, s.width), unskew(x.to(gpu), s.width));
    }
  }
}
