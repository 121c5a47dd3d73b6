// Rotary positional encoding: a thread rotates a pack of pairs of a row, or one pair if rows do
// not consist of packs. Rows are taken in the order of [B, L, H, D]: the heads of a position use
// the same row of the tables. Tested against the CPU: bit-identical.
#include "cuda/attention/rotary.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/head_rows.cuh"
#include "cuda/runtime/unfused.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

struct RotaryPlan {
  int64_t items;  // B·L·H · (packs of pairs and packs of features that are copied, of a row)
  Divider by_row, by_heads, by_length;
  int pairs;
  bool interleaved, inverse;
};

template <int V, class T>
__device__ inline Pack<T, V>& pack_at(T* row, int first) {
  return *reinterpret_cast<Pack<T, V>*>(row + first);
}
template <int V, class T>
__device__ inline Pack<T, V> pack_at(const T* row, int first) {
  return *reinterpret_cast<const Pack<T, V>*>(row + first);
}

/// out, in [B, H, L, D]; cosines, sines [L, pairs]
template <int V, class T, class C>
__global__ void rotate_rows(HeadRows<T> out, HeadRows<const T> in, const C* cosines, const C* sines,
                            const __grid_constant__ RotaryPlan p) {
#pragma unroll 1
  for (uint64_t item = thread_index(); item < uint64_t(p.items); item += thread_count()) {
    const uint64_t row = p.by_row.quotient(item), token = p.by_heads.quotient(row),
                   batch = p.by_length.quotient(token);
    const int i = int(item - row * p.by_row.size) * V;
    const int head = int(row - token * p.by_heads.size), l = int(token - batch * p.by_length.size);
    const T* const x = in.at(int(batch), head, l);
    T* const y = out.at(int(batch), head, l);
    if (i >= p.pairs) {  // a pack that is copied
      pack_at<V>(y, p.pairs + i) = pack_at<V>(x, p.pairs + i);
      continue;
    }
    // Pairs i … i + V − 1 are features 2 i … 2 i + 2 V − 1, or i … and pairs + i ….
    const int first = p.interleaved ? 2 * i : i, second = p.interleaved ? first + V : i + p.pairs;
    Pack<T, V> packs[2] = {pack_at<V>(x, first), pack_at<V>(x, second)};
    const Pack<C, V> c = pack_at<V>(cosines + int64_t(l) * p.pairs, i),
                     s = pack_at<V>(sines + int64_t(l) * p.pairs, i);
    const auto rotate = [&](T& left, T& right, int k) {
      const C a = cast<C>(left), b = cast<C>(right), sine = p.inverse ? -s.v[k] : s.v[k];
      left = cast<T>(a * c.v[k] - b * sine);
      right = cast<T>(b * c.v[k] + a * sine);
    };
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if (V > 1 && p.interleaved)
        rotate(packs[2 * k / V].v[2 * k % V], packs[2 * k / V].v[2 * k % V + 1], k);
      else
        rotate(packs[0].v[k], packs[1].v[k], k);
    }
    pack_at<V>(y, first) = packs[0];
    pack_at<V>(y, second) = packs[1];
  }
}

}  // namespace

void rotate(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved,
            bool inverse, const Tensor& y) {
  const int64_t rows = x.size(0) * x.size(1) * x.size(2), pairs = cosines.size(1);
  dispatch_floating(x.dtype(), "rotate", [&]<class T>() {
    using C = compute_t<T>;
    const HeadRows<T> out = head_rows<T>(y, pack_size<T>);
    const HeadRows<const T> in = head_rows<const T>(x, pack_size<T>);
    const auto run = [&]<int V>() {
      const int64_t per_row = (x.size(3) - pairs) / V;
      const RotaryPlan plan{.items = rows * per_row,
                            .by_row = Divider(per_row),
                            .by_heads = Divider(x.size(1)),
                            .by_length = Divider(x.size(2)),
                            .pairs = int(pairs),
                            .interleaved = interleaved,
                            .inverse = inverse};
      launch("rotate", x.device().index, rotate_rows<V, T, C>, blocks_for(plan.items, threads),
             threads, out, in, static_cast<const C*>(cosines.data<C>()),
             static_cast<const C*>(sines.data<C>()), plan);
    };
    const bool packs = pairs % pack_size<T> == 0 && aligned(cosines.raw_data()) &&
                       aligned(sines.raw_data()) && in.packs && out.packs;
    packs ? run.template operator()<pack_size<T>>() : run.template operator()<1>();
  });
}

}  // namespace stretto::cuda
