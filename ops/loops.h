// Iteration over strided operands on the CPU. Neighboring dimensions that one loop with a constant
// stride can cover are merged. Rows are distributed to threads in chunks that depend only on the
// sizes. Internal to ops/.
#pragma once

#include <array>

#include "../core/math.h"
#include "../core/parallel.h"
#include "../core/tensor.h"
#include "on_device.h"

namespace stretto {

/// Returns the output tensor of an elementwise loop over x: x itself if it is contiguous and no
/// other handle refers to it (unique()), else a new tensor.
inline Tensor in_place_or_new(const Tensor& x) {
  return x.unique() && x.is_contiguous() ? x : empty_like(x);
}

/// Returns x if it is contiguous, else a contiguous copy, held by `copy`.
inline const Tensor& contiguous(const Tensor& x, Tensor& copy) {
  if (x.is_contiguous()) return x;
  return copy = x.contiguous();
}

/// A loop over N operands of one shape. `run(f)` calls f(offsets, n) for runs of n elements;
/// element i of the run is at offsets[k] + i · inner[k] in operand k.
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
