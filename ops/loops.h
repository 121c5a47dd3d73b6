// Iteration over strided operands on the CPU: dimensions that can be walked as one are merged,
// rows are shared out among threads in chunks that depend on the sizes only. Internal to ops/.
#pragma once

#include <array>

#include "../core/math.h"
#include "../core/parallel.h"
#include "../core/tensor.h"
#include "on_device.h"

namespace stretto {

/// Where a loop over x puts what becomes of x, element for element: x itself where nothing else
/// holds it, else a new tensor.
inline Tensor in_place_or_new(const Tensor& x) {
  return x.unique() && x.is_contiguous() ? x : empty_like(x);
}

/// x where it is contiguous, else a copy, which `copy` then keeps.
inline const Tensor& contiguous(const Tensor& x, Tensor& copy) {
  if (x.is_contiguous()) return x;
  return copy = x.contiguous();
}

/// N operands of one shape. `run(f)` calls f(offsets, n) for runs of n elements; operand k's
/// element i of the run lies at offsets[k] + i · inner[k].
template <int N>
class StridedLoop {
 public:
  using Offsets = std::array<int64_t, N>;
  Offsets inner{};

  StridedLoop(const Shape& sizes, const std::array<Shape, N>& strides)
      : empty_(sizes.numel() == 0), sizes_(sizes), strides_(strides) {
    merge_dimensions(sizes_, strides_.data(), N);
    if (sizes_.dim() > 0) {
      n_ = sizes_.back();
      sizes_.erase(sizes_.dim() - 1);
      for (int k = 0; k < N; ++k) {
        Shape& s = strides_[size_t(k)];
        inner[size_t(k)] = s.back();
        s.erase(s.dim() - 1);
      }
    }
  }

  template <class F>
  void run(F&& f) const {
    if (empty_) return;
    const int64_t rows = sizes_.numel();
    if (rows == 1) {
      parallel_for(n_, 32768, [&](int64_t begin, int64_t end) {
        Offsets at{};
        for (size_t k = 0; k < N; ++k) at[k] = begin * inner[k];
        f(at, end - begin);
      });
      return;
    }
    parallel_for(rows, rows_per_chunk(n_), [&](int64_t begin, int64_t end) {
      Shape index = sizes_;
      Offsets at{};
      int64_t rest = begin;
      for (int64_t d = sizes_.dim() - 1; d >= 0; --d) {
        index[d] = rest % sizes_[d];
        rest /= sizes_[d];
        for (size_t k = 0; k < N; ++k) at[k] += index[d] * strides_[k][d];
      }
      for (int64_t row = begin; row < end; ++row) {
        f(at, n_);
        for (int64_t d = sizes_.dim() - 1; d >= 0; --d) {
          for (size_t k = 0; k < N; ++k) at[k] += strides_[k][d];
          if (++index[d] < sizes_[d]) break;
          for (size_t k = 0; k < N; ++k) at[k] -= index[d] * strides_[k][d];
          index[d] = 0;
        }
      }
    });
  }

 private:
  bool empty_;
  int64_t n_ = 1;
  Shape sizes_;
  std::array<Shape, N> strides_;
};

}  // namespace stretto
