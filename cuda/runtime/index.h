// Index arithmetic of the kernels: which element, which column, which part of a sum. Plain C++,
// used by the kernels and tested on the host (tests/cuda/index_test.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "../../core/math.h"
#include "../../core/shape.h"

namespace stretto::cuda {

/// Division by a divisor that is fixed at launch, computed as a product and a shift (Granlund &
/// Montgomery, 1994): i / d = (⌊i·m / 2^w⌋ + i) >> s with 2^s ≥ d and m = ⌊2^w (2^s − d) / d⌋ + 1,
/// for w = 32 with i < 2^31 and for w = 64 with i < 2^63.
struct Divider {
  uint64_t size = 1, magic64 = 1;
  uint32_t magic32 = 1;
  int shift = 0;

  Divider() = default;
  explicit Divider(int64_t d) : size(uint64_t(d)) {
    if (d == 0) return;
    while (shift < 62 && (uint64_t(1) << shift) < size) ++shift;
    const uint64_t missing = (uint64_t(1) << shift) - size;
    uint64_t rest = missing;  // ⌊2^64 missing / size⌋, bit by bit
    for (int bit = 0; bit < 64; ++bit) {
      const bool one = rest >= size - rest;
      rest = one ? rest - (size - rest) : 2 * rest;
      magic64 = 2 * magic64 + one;
    }
    magic64 += 1;
    if (size < uint64_t(1) << 31) magic32 = uint32_t((missing << 32) / size + 1);
  }

  STRETTO_HD uint32_t quotient(uint32_t i) const {
    return (uint32_t(uint64_t(i) * magic32 >> 32) + i) >> shift;
  }
  STRETTO_HD uint64_t quotient(uint64_t i) const {
#ifdef __CUDA_ARCH__
    const uint64_t high = __umul64hi(i, magic64);
#else
    __extension__ typedef unsigned __int128 Wide;
    const uint64_t high = uint64_t(Wide(i) * magic64 >> 64);
#endif
    return (high + i) >> shift;
  }
};

/// N operands of one common shape, passed to kernels by value. Strides in elements; 0 broadcasts.
template <int N>
struct Layout {
  int dims = 0;
  int64_t sizes[Shape::max_dims] = {};
  int64_t strides[N][Shape::max_dims] = {};
  Divider by[Shape::max_dims];  // divide by the sizes

  STRETTO_HD int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= sizes[d];
    return n;
  }
};

template <int N>
struct Offsets {
  int64_t v[N];
};

/// Merges dimensions: a contiguous tensor then has only one, and its kernels need no division.
template <int N>
Layout<N> make_layout(Shape sizes, const Shape (&strides)[N]) {
  std::array<Shape, N> steps = std::to_array(strides);
  merge_dimensions(sizes, steps.data(), N);
  Layout<N> layout;
  layout.dims = int(sizes.dim());
  for (int d = 0; d < layout.dims; ++d) {
    layout.sizes[d] = sizes[d];
    layout.by[d] = Divider(sizes[d]);
    for (size_t n = 0; n < N; ++n) layout.strides[n][d] = steps[n][d];
  }
  return layout;
}

/// The offset of element i (row-major) of the layout in each operand. Index is uint32_t for fewer
/// than 2^31 elements, else uint64_t.
template <int N, class Index>
STRETTO_HD inline Offsets<N> offsets(const Layout<N>& layout, Index i) {
  static_assert(std::is_unsigned_v<Index>);
  Offsets<N> at = {};
  for (int d = layout.dims - 1; d > 0; --d) {
    const Index outer = layout.by[d].quotient(i);
    const int64_t index = int64_t(i - outer * Index(layout.sizes[d]));
    for (int n = 0; n < N; ++n) at.v[n] += index * layout.strides[n][d];
    i = outer;
  }
  for (int n = 0; n < N; ++n) at.v[n] += int64_t(i) * layout.strides[n][0];
  return at;
}

/// Splits the layout into parts of at most `most` elements and calls f(part, offsets of its first
/// element) in order: a tensor of 2^31 or more elements takes several launches with 32-bit indices.
template <int N, class F>
void for_parts(const Layout<N>& layout, int64_t most, F f, Offsets<N> at = {}) {
  const int64_t n = layout.numel();
  if (n <= most) return f(layout, at);
  const int64_t inner = n / layout.sizes[0];
  const int64_t take = std::max<int64_t>(1, most / inner);
  for (int64_t i = 0; i < layout.sizes[0]; i += take) {
    Layout<N> part = layout;
    part.sizes[0] = std::min(take, layout.sizes[0] - i);
    part.by[0] = Divider(part.sizes[0]);
    Offsets<N> first = at;
    for (int k = 0; k < N; ++k) first.v[k] += i * layout.strides[k][0];
    if (part.sizes[0] == 1 && part.dims > 1) {
      --part.dims;
      for (int d = 0; d < part.dims; ++d) {
        part.sizes[d] = layout.sizes[d + 1];
        part.by[d] = layout.by[d + 1];
        for (int k = 0; k < N; ++k) part.strides[k][d] = layout.strides[k][d + 1];
      }
    }
    for_parts(part, most, f, first);
  }
}

/// A copy by square tiles, for operands (to, from) whose smallest strides are along different
/// dimensions: `to_along` and `from_along` are these strides, `…_across` the same operand's strides
/// along the other one's dimension. The remaining dimensions form `rest`.
struct TilePlan {
  Layout<2> rest;
  int64_t to_size = 0, from_size = 0;  // sizes of these two dimensions
  int64_t to_along = 1, to_across = 1, from_along = 1, from_across = 1;
  uint32_t tiles = 0;  // 0: a copy by tiles does not pay off
  Divider by_to, by_from;

  struct Place {
    int64_t to, from;
    int to_count, from_count;
  };
  /// Where a tile begins in both operands, and how many elements it has along each dimension.
  STRETTO_HD Place place(uint32_t tile, int side) const {
    const uint32_t row = by_to.quotient(tile), outer = by_from.quotient(row);
    const int64_t t = int64_t(tile - row * uint32_t(by_to.size)) * side;
    const int64_t f = int64_t(row - outer * uint32_t(by_from.size)) * side;
    Offsets<2> at = {};
    if (rest.dims > 0) at = offsets(rest, outer);
    return {at.v[0] + t * to_along + f * to_across, at.v[1] + t * from_across + f * from_along,
            int(t + side < to_size ? side : to_size - t),
            int(f + side < from_size ? side : from_size - f)};
  }
};

STRETTO_HD inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// skew: the column of x [.., M, W] that is copied to y [.., i, j], if it is in [0, W).
STRETTO_HD inline int64_t skew_column(int64_t i, int64_t j, int64_t m) { return j - i + m - 1; }
/// unskew: the column of y [.., M, N] that is copied to x [.., i, c], if it is in [0, N).
STRETTO_HD inline int64_t unskew_column(int64_t i, int64_t c, int64_t m) { return c + i - m + 1; }

/// The plan of a sum. Output o starts at offsets(kept, o) of x and adds the `count` elements at
/// offsets(reduced, r) from there. The range of r is split into `splits` chunks of `chunk` (the
/// last may be shorter, none is empty); a second step adds the chunks' sums. The plan depends on
/// sizes and strides only, and so does the order of additions.
struct SumPlan {
  Layout<1> kept, reduced;
  int64_t outputs = 1, count = 1, splits = 1, chunk = 1;
  int threads = 0;     // by rows: 32 or 256 share an output; 0: by columns, a thread per output
  bool packs = false;  // by rows: chunks are whole packs of contiguous elements
  Divider by_outputs;

  /// Decides on packs of `size` elements; x_aligned tells if x begins at a multiple of a pack.
  void set_packs(int64_t size, bool x_aligned) {
    packs = threads > 0 && x_aligned && reduced.dims == 1 && reduced.strides[0][0] == 1 &&
            count % size == 0 && chunk % size == 0;
    for (int d = 0; d < kept.dims; ++d) packs = packs && kept.strides[0][d] % size == 0;
  }

  /// By columns: true if the outputs of a pack read whole packs of x, for every r.
  bool column_packs(int64_t size, bool x_aligned) const {
    const int last = kept.dims - 1;
    bool yes = x_aligned && last >= 0 && kept.strides[0][last] == 1 && kept.sizes[last] % size == 0;
    for (int d = 0; d < last; ++d) yes = yes && kept.strides[0][d] % size == 0;
    for (int d = 0; d < reduced.dims; ++d) yes = yes && reduced.strides[0][d] % size == 0;
    return yes;
  }
};

STRETTO_HD inline int64_t chunk_end(const SumPlan& plan, int64_t begin) {
  return begin + plan.chunk < plan.count ? begin + plan.chunk : plan.count;
}

inline SumPlan plan_sum(const Shape& sizes, const Shape& strides, const Shape& dims) {
  SumPlan plan;
  Shape kept_sizes, kept_strides[1], reduced_sizes, reduced_strides[1];
  for (int64_t d = 0, next = 0; d < sizes.dim(); ++d) {
    const bool reduce = next < dims.dim() && dims[next] == d;
    if (reduce) ++next;
    (reduce ? reduced_sizes : kept_sizes).push_back(sizes[d]);
    (reduce ? reduced_strides : kept_strides)[0].push_back(strides[d]);
  }
  plan.kept = make_layout(kept_sizes, kept_strides);
  plan.reduced = make_layout(reduced_sizes, reduced_strides);
  plan.outputs = kept_sizes.numel();
  plan.count = reduced_sizes.numel();
  if (plan.outputs == 0 || plan.count == 0) return plan;

  auto inner_stride = [](const Layout<1>& l) {
    return l.dims ? l.strides[0][l.dims - 1] : INT64_MAX;
  };
  const bool rows = plan.count >= 32 &&
                    (plan.outputs < 8 || inner_stride(plan.reduced) < inner_stride(plan.kept));
  constexpr int64_t enough_blocks = 1024;  // a few per multiprocessor of any GPU
  if (rows) {
    plan.threads = plan.count <= 1024 ? 32 : 256;
    plan.splits = plan.threads == 32
                      ? 1
                      : std::min(ceil_div(enough_blocks, plan.outputs), ceil_div(plan.count, 8192));
  } else {
    plan.splits =
        std::min(ceil_div(enough_blocks, ceil_div(plan.outputs, 32)), ceil_div(plan.count, 256));
  }
  plan.chunk = ceil_div(plan.count, plan.splits);
  if (rows && plan.splits > 1) plan.chunk = ceil_div(plan.chunk, 16) * 16;
  plan.splits = ceil_div(plan.count, plan.chunk);
  plan.by_outputs = Divider(plan.outputs);
  return plan;
}

/// Plans tiles of side × side elements if both dimensions have at least `least` elements.
inline TilePlan plan_tiles(const Shape& sizes, const Shape& to, const Shape& from, int side,
                           int64_t least) {
  TilePlan plan;
  const Layout<2> all = make_layout(sizes, {to, from});
  auto nearest = [&](int k) {  // the dimension with the smallest nonzero stride
    int best = -1;
    for (int d = 0; d < all.dims; ++d)
      if (all.strides[k][d] != 0 &&
          (best < 0 || std::abs(all.strides[k][d]) < std::abs(all.strides[k][best])))
        best = d;
    return best;
  };
  const int t = nearest(0), f = nearest(1);
  if (t < 0 || f < 0 || t == f || all.strides[1][t] == 0) return plan;
  if (all.sizes[t] < least || all.sizes[f] < least) return plan;
  plan.to_size = all.sizes[t];
  plan.from_size = all.sizes[f];
  plan.to_along = all.strides[0][t], plan.from_across = all.strides[1][t];
  plan.to_across = all.strides[0][f], plan.from_along = all.strides[1][f];
  for (int d = 0; d < all.dims; ++d) {
    if (d == t || d == f) continue;
    const int at = plan.rest.dims++;
    plan.rest.sizes[at] = all.sizes[d];
    plan.rest.by[at] = all.by[d];
    for (int k = 0; k < 2; ++k) plan.rest.strides[k][at] = all.strides[k][d];
  }
  plan.by_to = Divider(ceil_div(plan.to_size, side));
  plan.by_from = Divider(ceil_div(plan.from_size, side));
  const uint64_t tiles = plan.by_to.size * plan.by_from.size * uint64_t(plan.rest.numel());
  if (tiles < uint64_t(1) << 31) plan.tiles = uint32_t(tiles);
  return plan;
}

}  // namespace stretto::cuda
