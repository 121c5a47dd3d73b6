// [B, H, L, D] tensors as kernels see them: by pointer and strides, rows contiguous.
#pragma once

#include "cuda/runtime/common.cuh"

namespace stretto::cuda {

/// A [B, H, L, D] tensor by pointer and strides in elements.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
  bool packs = false;  // rows are whole packs of the size passed to head_rows()

  __device__ T* at(int b, int h, int i = 0) const { return data + b * batch + h * head + i * row; }
};

/// True if all rows of x [B, H, L, D] begin at multiples of `elements` elements in memory.
inline bool rows_aligned(const Tensor& x, int64_t elements) {
  bool fits =
      reinterpret_cast<uintptr_t>(x.raw_data()) % size_t(elements * item_size(x.dtype())) == 0;
  for (int64_t d = 0; d < 3; ++d) fits = fits && (x.size(d) == 1 || x.strides()[d] % elements == 0);
  return fits;
}

/// x [B, H, L, D] with contiguous rows; `packs` tells if they are whole packs of `pack` elements.
template <class T>
HeadRows<T> head_rows(const Tensor& x, int pack = 1) {
  const Shape& s = x.strides();
  return {x.data<std::remove_const_t<T>>(), s[0], s[1], x.size(2) == 1 ? x.size(3) : s[2],
          x.size(3) % pack == 0 && rows_aligned(x, pack)};
}

}  // namespace stretto::cuda
