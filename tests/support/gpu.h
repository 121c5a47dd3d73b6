// Shared by the tests of CUDA: the GPU or a reason to skip, and comparisons with the CPU.
//
// Tolerances follow from the arithmetic: one correctly rounded operation is bit-identical;
// a sum of n terms has an error of at most its depth times the rounding unit times the sum
// of absolute values.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/gpu_runtime.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "tests/support/catch.h"

#define NEEDS_GPU() \
  if (!cuda_available()) STRETTO_SKIP("no CUDA GPU: " + cuda_description())

namespace stretto::testing {

inline const Device gpu(DeviceType::cuda, 0);
inline constexpr double inf = std::numeric_limits<double>::infinity();

// The unit roundoff, half the distance from 1 to the next number: the largest relative error
// of one rounding.
inline double unit(DType t) {
  return t == f64 ? std::ldexp(1.0, -53) : t == f32 ? std::ldexp(1.0, -24) : std::ldexp(1.0, -8);
}

/// Returns the bytes in use on the GPU: with the workspace of matrix products, which the first
/// product allocates and never frees, and without cached memory.
inline int64_t gpu_bytes() {
  const Tensor one = ones({1, 1}, {.device = gpu});
  matmul(one, one);
  release_cached_memory(gpu);
  return memory_stats(gpu).live - item_size(f32);
}
/// Returns the bytes in use on the default device.
inline int64_t live_bytes() {
  return default_device().is_cuda() ? gpu_bytes() : memory_stats().live;
}

inline Tensor noise(const Shape& shape, uint64_t stream, DType dtype = f32) {
  return randn(shape, RandomKey{11, stream}).to(dtype);
}

// x on the GPU, its memory starting `offset` elements after a multiple of 256 bytes.
inline Tensor begins_at(int64_t offset, const Tensor& x) {
  const Tensor all = cat({zeros({offset}, options_of(x)), x.contiguous().view({-1})}, 0).to(gpu);
  return make_view(all, offset, x.shape(), contiguous_strides(x.shape()));
}

// x on the GPU with the same layout, including strides and gaps.
inline Tensor on_gpu(const Tensor& x) {
  int64_t extent = x.offset() + 1;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) == 0) extent = x.offset();
    extent += std::max<int64_t>(x.size(d) - 1, 0) * x.strides()[d];
  }
  const Tensor all = make_view(x.detach(), 0, {extent}, {1});
  return make_view(all.to(gpu), x.offset(), x.shape(), x.strides());
}

inline bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

inline void check_equal(const Tensor& expected, const Tensor& actual) {
  REQUIRE(actual.device() == gpu);
  REQUIRE(actual.shape() == expected.shape());
  REQUIRE(actual.dtype() == expected.dtype());
  const std::vector<double> e = expected.to_vector<double>(), a = actual.to_vector<double>();
  size_t wrong = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (same_bits(e[i], a[i])) continue;
    if (++wrong <= 3) UNSCOPED_INFO("element " << i << ": " << a[i] << ", expected " << e[i]);
  }
  CHECK(wrong == 0);
}

// |actual − expected| <= allowed(i), element by element; NaN and infinities must agree.
template <class F>
void check_close(const Tensor& expected, const Tensor& actual, F allowed) {
  REQUIRE(actual.device() == gpu);
  REQUIRE(actual.shape() == expected.shape());
  const std::vector<double> e = expected.to_vector<double>(), a = actual.to_vector<double>();
  size_t wrong = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (same_bits(e[i], a[i]) || std::abs(a[i] - e[i]) <= allowed(i)) continue;
    if (++wrong <= 3)
      UNSCOPED_INFO("element " << i << ": " << a[i] << ", expected " << e[i] << " within "
                               << allowed(i));
  }
  CHECK(wrong == 0);
}

// Returns a bool, as Catch would print vectors of 100,000 elements.
template <class T>
bool same_values(const std::vector<T>& a, const std::vector<T>& b) {
  return a == b;
}
inline bool same_values(const Tensor& a, const Tensor& b) {
  return same_values(a.to_vector<double>(), b.to_vector<double>());
}

inline const std::vector<DType> floating = {f32, f64, bf16};

}  // namespace stretto::testing
