// max, min, argmax, cumsum and logsumexp: CPU against CUDA.
#include <cmath>
#include <vector>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

void compare_extremes(const Tensor& x) {
  CAPTURE(str(x), str(x.strides()));
  const Tensor gpu_x = on_gpu(x);
  for (int64_t d = 0; d < x.dim(); ++d) {
    check_equal(max(x, d), max(gpu_x, d));
    check_equal(min(x, d, true), min(gpu_x, d, true));
    check_equal(argmax(x, d), argmax(gpu_x, d));
  }
  check_equal(max(x), max(gpu_x));
  check_equal(min(x), min(gpu_x));
}

}  // namespace

TEST_CASE("max, min and argmax are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 1;
  for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
    for (const Shape& shape : {Shape{1}, Shape{31}, Shape{7, 33}, Shape{3, 1024}, Shape{3, 1025},
                               Shape{2, 16, 40}, Shape{5, 8192}, Shape{40003}, Shape{65536}}) {
      const Tensor x = noise(shape, ++stream);
      compare_extremes(mul(x, 30).to(i32).to(t));  // with ties
      if (is_floating(t)) compare_extremes(x.to(t));
    }
    const Tensor x = mul(noise({30, 40}, ++stream), 30).to(i32).to(t);
    compare_extremes(x.transpose(0, 1));
    compare_extremes(x.slice(1, 3, 40, 2));
  }
  for (const int64_t n : {5, 64, 3000, 30000}) {
    for (const DType t : floating) {
      Tensor x = zeros({6, n}, {.dtype = t});
      x[0].fill_(-inf);
      x[1].slice(0, n / 2, n / 2 + 1).fill_(std::nan(""));
      x[1].slice(0, n - 1).fill_(std::nan(""));
      x[2].slice(0, n - 1).fill_(inf);
      x[3].fill_(std::nan(""));
      x[4].slice(0, 1, 2).fill_(-0.0);
      x[5].fill_(-3e38);
      compare_extremes(x);
    }
  }
}

TEST_CASE("cumsum agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 100;
  for (const Shape& shape : {Shape{1}, Shape{0, 3}, Shape{3, 0}, Shape{31}, Shape{7, 33},
                             Shape{3, 1024}, Shape{3, 1025}, Shape{5, 40, 3}, Shape{20003}}) {
    for (const DType t : {i64, i32, u8, boolean}) {
      const Tensor x = mul(noise(shape, ++stream), 3e3).to(i32).to(t);
      for (int64_t d = 0; d < x.dim(); ++d) check_equal(cumsum(x, d), cumsum(x.to(gpu), d));
    }
    for (const DType t : floating) {
      const Tensor x = noise(shape, ++stream, t);
      for (int64_t d = 0; d < x.dim(); ++d) {
        CAPTURE(str(shape), d, name(t));
        const Tensor exact = cumsum(x.to(f64), d), size = cumsum(abs(x.to(f64)), d);
        const auto s = size.to_vector<double>(), v = exact.to_vector<double>();
        // The depth of a sum over a row is the number of its tiles plus 16, over a column its
        // length; f64 sums on the CPU have the same depth.
        const double depth = double(x.size(d)) * (t == f64 ? 2 : 1) + 16;
        const Tensor y = cumsum(x.to(gpu), d);
        CHECK(y.dtype() == t);
        check_close(exact, y, [&](size_t i) {
          return s[i] * depth * unit(t == f64 ? f64 : f32) +
                 (t == bf16 ? std::abs(v[i]) * 1.01 * unit(bf16) : 0);
        });
        CHECK(same_values(y, cumsum(x.to(gpu), d)));
      }
    }
  }
  const Tensor wraps = full({3000}, double(INT64_MAX / 2), {.dtype = i64});
  check_equal(cumsum(wraps, 0), cumsum(wraps.to(gpu), 0));
}

TEST_CASE("logsumexp agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 200;
  for (const Shape& shape : {Shape{1}, Shape{0, 3}, Shape{3, 0}, Shape{31}, Shape{7, 33},
                             Shape{3, 1024}, Shape{3, 5000}, Shape{2, 40001}}) {
    for (const DType t : floating) {
      CAPTURE(str(shape), name(t));
      const Tensor x = mul(noise(shape, ++stream), 3).to(t);
      const Tensor exact = logsumexp(x.to(f64), -1);
      const auto v = exact.to_vector<double>();
      // The relative error of the positive sum is the error of the result. Each term has an error
      // of |x − max| (below 40) and a few units, again at every new maximum of its thread.
      const double depth = 40 + double(shape.back()) / 32 + 64;
      check_close(exact, logsumexp(x.to(gpu), -1), [&](size_t i) {
        return (depth + std::abs(v[i])) * 2 * unit(t == f64 ? f64 : f32) +
               (t == bf16 ? std::abs(v[i]) * 1.01 * unit(bf16) : 0);
      });
    }
  }
  for (const int64_t n : {5, 3000}) {
    for (const DType t : floating) {
      Tensor x = zeros({6, n}, {.dtype = t});
      x[0].fill_(-inf);
      x[1].slice(0, 1).fill_(-inf);
      x[2].slice(0, n - 1).fill_(inf);
      x[3].slice(0, n - 1).fill_(std::nan(""));
      x[4].fill_(-inf);
      x[4].slice(0, 1, 2).fill_(std::nan(""));
      x[5].fill_(3e38);
      const Tensor expected = logsumexp(x, -1);
      check_close(expected, logsumexp(x.to(gpu), -1), [](size_t) { return 1e-2; });
    }
  }
}
