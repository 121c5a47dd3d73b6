// Rows of contiguous tensors [rows, width]: how threads share their elements, in packs of 16 bytes
// if the width allows it, and reductions over a row. A warp handles a short row, a block a long
// one; a row of up to 16 elements per thread (32 in bf16) stays in registers. Kernels for shorter
// rows use fewer registers.
//
// All of this depends on the width only: rows begin at multiples of 16 bytes (row_major), and the
// order of additions is the same in every call.
#pragma once

#include "cuda/runtime/common.cuh"

namespace stretto::cuda {

/// x in row-major order and aligned for packs; a copy if x is not.
inline Tensor row_major(const Tensor& x) {
  const Tensor y = x.detach().contiguous();
  return aligned(y.raw_data()) ? y : y.clone();
}

template <int threads, int V, int K>
struct RowShape {
  static constexpr int Threads = threads, pack = V, packs = K;
};

/// Calls go(RowShape) for rows of this width: with registers for the whole row or, if it is too
/// long, with packs = 0.
template <class T, class F>
void choose_rows(int64_t width, F go) {
  auto of_pack = [&]<int V>() {
    constexpr int K = 16 / V, most = K > 4 ? K : 4;  // packs per thread
    if (width <= 32 * V * K) {
      go(RowShape<32, V, K>());
    } else if (width <= 32 * V * most) {
      go(RowShape<32, V, most>());
    } else if (width <= 256 * V * K) {
      go(RowShape<256, V, K>());
    } else if (width <= 256 * V * most) {
      go(RowShape<256, V, most>());
    } else {
      go(RowShape<256, V, 0>());
    }
  };
  width % pack_size<T> == 0 ? of_pack.template operator()<pack_size<T>>()
                            : of_pack.template operator()<1>();
}

/// Calls f(i, x_i...) for the thread's elements of rows x of this width, in compute types.
template <class Shape, class F, class... T>
__device__ inline void walk(int64_t width, F f, const T*... rows) {
  constexpr int V = Shape::pack;
#pragma unroll 1
  for (int64_t i = threadIdx.x * V; i < width; i += Shape::Threads * V) {
    [&](const Pack<T, V>... x) {
#pragma unroll
      for (int j = 0; j < V; ++j) f(i + j, cast<compute_t<T>>(x.v[j])...);
    }(*reinterpret_cast<const Pack<T, V>*>(rows + i)...);
  }
}

/// Calls f(x) for the thread's packs of a row, in its compute type.
template <class Shape, class F, class T>
__device__ inline void walk_packs(int64_t width, F f, const T* row) {
  constexpr int V = Shape::pack;
#pragma unroll 1
  for (int64_t i = threadIdx.x * V; i < width; i += Shape::Threads * V) {
    const auto pack = *reinterpret_cast<const Pack<T, V>*>(row + i);
    Pack<compute_t<T>, V> x;
#pragma unroll
    for (int j = 0; j < V; ++j) x.v[j] = cast<compute_t<T>>(pack.v[j]);
    f(x);
  }
}

/// y_i = f(i, x_i...) for the thread's elements.
template <class Shape, class Out, class F, class... T>
__device__ inline void map_row(Out* y, int64_t width, F f, const T*... rows) {
  constexpr int V = Shape::pack;
#pragma unroll 1
  for (int64_t i = threadIdx.x * V; i < width; i += Shape::Threads * V) {
    Pack<Out, V> result;
    [&](const Pack<T, V>... x) {
#pragma unroll
      for (int j = 0; j < V; ++j) result.v[j] = cast<Out>(f(i + j, cast<compute_t<T>>(x.v[j])...));
    }(*reinterpret_cast<const Pack<T, V>*>(rows + i)...);
    *reinterpret_cast<Pack<Out, V>*>(y + i) = result;
  }
}

/// The pack at `first` of a row that all rows share (a weight or bias); zeros if it is null.
template <int V, class T>
__device__ inline Pack<T, V> pack_or_zero(const T* row, int first) {
  return row ? *reinterpret_cast<const Pack<T, V>*>(row + first) : Pack<T, V>{};
}

/// A row in the registers of its threads, as it is in memory.
template <class Shape, class T>
struct RowPacks {
  static constexpr int V = Shape::pack;
  Pack<T, V> packs[Shape::packs];

  /// Elements past the end of the row are 0.
  __device__ void load(const T* row, int width) {
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int first = (p * Shape::Threads + int(threadIdx.x)) * V;
      packs[p] = {};
      if (first < width) packs[p] = *reinterpret_cast<const Pack<T, V>*>(row + first);
    }
  }
  /// Element k of the thread.
  __device__ compute_t<T> operator[](int k) const {
    return cast<compute_t<T>>(packs[k / V].v[k % V]);
  }
};

/// A row in the registers of its threads, in its compute type.
template <class Shape, class T>
struct RowInRegisters {
  using C = compute_t<T>;
  static constexpr int V = Shape::pack;
  C v[Shape::packs * V];

  /// Calls f(k, s_i...) for element i of the row, which is v[k], and of shared rows
  /// s; null counts as 0.
  template <class F, class... S>
  __device__ void each(int width, F f, const S*... shared) const {
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int first = (p * Shape::Threads + int(threadIdx.x)) * V;
      if (first < width) {
        [&](const Pack<S, V>... s) {
#pragma unroll
          for (int j = 0; j < V; ++j) f(p * V + j, cast<C>(s.v[j])...);
        }(pack_or_zero<V>(shared, first)...);
      }
    }
  }
  __device__ void set(const RowPacks<Shape, T>& x) {
#pragma unroll
    for (int k = 0; k < Shape::packs * V; ++k) v[k] = x[k];
  }
  /// Elements past the end of the row are 0.
  __device__ void load(const T* row, int width) {
    RowPacks<Shape, T> x;
    x.load(row, width);
    set(x);
  }
  /// row[i] = f(k, s_i...)
  template <class F, class... S>
  __device__ void store(T* row, int width, F f, const S*... shared) const {
#pragma unroll
    for (int p = 0; p < Shape::packs; ++p) {
      const int first = (p * Shape::Threads + int(threadIdx.x)) * V;
      if (first < width) {
        Pack<T, V> x;
        [&](const Pack<S, V>... s) {
#pragma unroll
          for (int j = 0; j < V; ++j) x.v[j] = cast<T>(f(p * V + j, cast<C>(s.v[j])...));
        }(pack_or_zero<V>(shared, first)...);
        *reinterpret_cast<Pack<T, V>*>(row + first) = x;
      }
    }
  }
};

/// The maximum of some values and Σ exp(x − top), in one pass (online softmax). Values of −∞ add
/// nothing; a NaN makes both NaN.
template <class C>
struct PowerSum {
  C top = -C(INFINITY), total = 0;

  template <int V>
  __device__ void add(const Pack<C, V>& x) {
    C most = x.v[0];
#pragma unroll
    for (int j = 1; j < V; ++j) most = Max()(x.v[j], most);
    if (most > top || most != most) {
      total *= math::exp(top - most);
      top = most;
    }
    if (top == -C(INFINITY)) return;
#pragma unroll
    for (int j = 0; j < V; ++j) total += x.v[j] == top ? C(1) : math::exp(x.v[j] - top);
  }
};

/// Combines the PowerSums of a row's threads; all of them get the result.
template <int Threads, class C>
__device__ inline PowerSum<C> combine(PowerSum<C> mine) {
  const C top = combine<Threads>(mine.top, Max());
  const C part = mine.total == C(0) ? C(0) : mine.total * math::exp(mine.top - top);
  return {top, combine<Threads>(part, Sum())};
}

}  // namespace stretto::cuda
