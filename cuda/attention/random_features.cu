// Random features, forward and backward, each in one pass.
//
// A block keeps the projection ω in shared memory, in f32, and iterates over tiles of 64 rows of a
// head. Products have f32 precision (cuda/runtime/fragments.cuh), also for bf16: an error of 0.4 % in
// u = 20 is one of 8 % in e^u. Forward, u stays in registers, 16 rows and half of the features per
// warp. Backward, du = ±g·y (a warp per row) goes through shared memory to
//
//     dx = D^(−1/4) du ω − x Σ g·y / √D
//
// With own_max, the second term is replaced: Σ g·y is subtracted from du at the row's maximum.
//
// Tested against the CPU.
#include <limits>

#include "cuda/attention/linear_attention.cuh"
#include "cuda/attention/random_features.h"

namespace stretto::cuda {
namespace {

using namespace linear;

constexpr int none = std::numeric_limits<int>::min();

template <class T>
struct Features {
  HeadRows<const T> x, y, g;
  HeadRows<T> to;  // y, or dx
  const float* projection;
  const float* bound;
  int* places;
  int heads, length, d, w;
  int tiles, count;  // per head, in total
  float scale, log_root;
  bool pairs, own_max;
};

/// The tile that a block processes.
template <class T>
struct At {
  int b, h, first;
  int64_t row;
  __device__ At(const Features<T>& a, int tile)
      : b(tile / a.tiles / a.heads),
        h(tile / a.tiles % a.heads),
        first(tile % a.tiles * chunk),
        row(int64_t(tile / a.tiles) * a.length) {}
};

/// Copies rows of x [rows, width] to a tile as f32, padded with zeros.
template <int Width, int Count, class T>
__device__ inline void load_tile(const Tile<float, Width, Count>& to, const T* x,
                                 int64_t row_stride, int rows, int width) {
  constexpr int chunks = Width / 4;
#pragma unroll 4
  for (int c = int(threadIdx.x); c < Count * chunks; c += threads) {
    const int r = c / chunks, column = c % chunks * 4;
    Pack<T, 4> from = {};
    if (r < rows && column < width)
      from = *reinterpret_cast<const Pack<T, 4>*>(x + r * row_stride + column);
    *reinterpret_cast<float4*>(to.at(r, column)) = {cast<float>(from.v[0]), cast<float>(from.v[1]),
                                                    cast<float>(from.v[2]), cast<float>(from.v[3])};
  }
}

/// A row's maximum so far: a NaN wins, then the first of equal values.
struct RowMax {
  float value = -INFINITY;
  int column = 0, code = 0;
  __device__ void merge(const RowMax& o) {
    const bool higher = o.value > value || (o.value == value && o.column < column);
    if (o.value != o.value || (value == value && higher)) *this = o;
  }
};

/// The widths that a kernel is compiled for: D and the projection's number of rows, rounded up.
struct FeatureWidths {
  int inputs = 64, features = 64;
};

/// Tiles in shared memory: x, ω and the gradient of u.
template <FeatureWidths W>
using Inputs = Tile<float, W.inputs, chunk>;
template <FeatureWidths W>
using Projection = Tile<float, W.inputs, W.features>;
template <FeatureWidths W>
using Gradients = Tile<float, W.features, chunk>;

/// The layout of a kernel's shared memory; its template argument (SharedMemory says why).
template <class T, FeatureWidths W>
struct FeaturePlan {
  using Element = T;
  static constexpr FeatureWidths widths = W;
  static constexpr int x = 0, w = Inputs<W>::bytes, more = w + Projection<W>::bytes,
                       forward = more + 2 * chunk * 12,
                       backward = more + Gradients<W>::bytes + chunk * 4;
  static constexpr int blocks_per_sm = W.inputs == 64 && W.features <= 128 ? 2 : 1;
  static_assert(backward <= 227 * 1024);
};

/// u = scale x ωᵀ of the warp's rows and half of the features, and the lane's part of |x|².
template <FeatureWidths W>
__device__ __forceinline__ void project(float (&u)[W.features / 32][2][4], float (&square)[2],
                                        const Place& p, const Inputs<W>& x, const Projection<W>& w,
                                        int d, float scale) {
#pragma unroll 1
  for (int k = 0; k < d; k += 16) {
    const auto mine = rows_of<Side::left>(x, 16 * p.warp_row, k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = mine.values(i / 2, i % 2);
      square[i / 2] += two.x * two.x + two.y * two.y;
    }
#pragma unroll
    for (int c = 0; c < W.features / 32; ++c)
      multiply(u[c], mine, rows_of<Side::right>(w, p.half<W.features>(c), k));
  }
#pragma unroll
  for (int i = 0; i < W.features / 4; ++i) u[i / 8][i / 4 % 2][i % 4] *= scale;
}

/// The maximum of each of the warp's rows; both halves exchange theirs through `shared` [2,
/// 64]. Contains a barrier.
template <FeatureWidths W>
__device__ __forceinline__ void find_row_maxima(RowMax (&row_max)[2],
                                                const float (&u)[W.features / 32][2][4],
                                                const Place& p, RowMax* shared, int w, bool pairs) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int i = 0; i < W.features / 8; ++i) {
      const int column = p.half<W.features>(i / 4) + i / 2 % 2 * 8 + p.column + i % 2;
      const float one = u[i / 4][i / 2 % 2][2 * h + i % 2];
      if (column < w)
        row_max[h].merge(pairs ? RowMax{fabsf(one), column, one < 0 ? -1 - column : column}
                               : RowMax{one, column, column});
    }
#pragma unroll
    for (int lane = 1; lane < 4; lane *= 2)
      row_max[h].merge({__shfl_xor_sync(0xffffffffu, row_max[h].value, lane),
                        __shfl_xor_sync(0xffffffffu, row_max[h].column, lane),
                        __shfl_xor_sync(0xffffffffu, row_max[h].code, lane)});
    if (p.column == 0) shared[p.warp_column * chunk + p.chunk_row(h)] = row_max[h];
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < 2; ++h)
    row_max[h].merge(shared[(1 - p.warp_column) * chunk + p.chunk_row(h)]);
}

/// Stores exp(±u − shift − log_root).
template <class T, FeatureWidths W>
__device__ __forceinline__ void store_features(const Features<T>& a, T* const (&rows)[2],
                                               const float (&u)[W.features / 32][2][4],
                                               const float (&shift)[2], const Place& p) {
  const float by[2] = {1, 1};
#pragma unroll 1
  for (int sign = 0; sign < (a.pairs ? 2 : 1); ++sign) {
#pragma unroll
    for (int c = 0; c < W.features / 64; ++c) {
      float y[2][2][4];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float one = u[2 * c + i / 8][i / 4 % 2][i % 4];
        y[i / 8][i / 4 % 2][i % 4] =
            math::exp(((sign ? -one : one) - shift[i % 4 / 2]) - a.log_root);
      }
      T* const to[2] = {rows[0] ? rows[0] + sign * a.w : nullptr,
                        rows[1] ? rows[1] + sign * a.w : nullptr};
      store_sums(to, y, by, p.half<W.features>(2 * c), a.w);
    }
  }
}

/// y and places
template <class Plan>
__global__ void __launch_bounds__(threads, Plan::blocks_per_sm)
    feature_rows(const __grid_constant__ Features<typename Plan::Element> a) {
  using T = typename Plan::Element;
  constexpr FeatureWidths W = Plan::widths;
  extern __shared__ __align__(1024) char memory[];
  const Inputs<W> x{memory + Plan::x};
  const Projection<W> w{memory + Plan::w};
  const Place p;
  load_tile(w, a.projection, a.d, a.w, a.d);
  const float bound = a.bound ? *a.bound : 0;
#pragma unroll 1
  for (int tile = int(blockIdx.x); tile < a.count; tile += int(gridDim.x)) {
    const At<T> at(a, tile);
    load_tile(x, a.x.at(at.b, at.h, at.first), a.x.row, a.length - at.first, a.d);
    __syncthreads();
    float u[W.features / 32][2][4] = {}, square[2] = {}, shift[2];
    project<W>(u, square, p, x, w, a.d, a.scale);
    RowMax row_max[2];
    if (a.own_max)
      find_row_maxima<W>(row_max, u, p, reinterpret_cast<RowMax*>(memory + Plan::more), a.w,
                         a.pairs);
    T* rows[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = at.first + p.chunk_row(h);
      shift[h] = a.own_max ? row_max[h].value : quad_sum(square[h]) * (0.5f * a.scale * a.scale);
      shift[h] += bound;
      rows[h] = row < a.length ? a.to.at(at.b, at.h, row) : nullptr;
      if (a.places && rows[h] && p.owns_row()) a.places[at.row + row] = row_max[h].code;
    }
    store_features<T, W>(a, rows, u, shift, p);
    __syncthreads();
  }
}

/// Writes du = ±g·y, minus its sum at the maximum, and −scale² Σ g·y of each row to shared memory.
template <class T, FeatureWidths W>
__device__ __forceinline__ void find_du(const Features<T>& a, const At<T>& at,
                                        const Gradients<W>& du, float* factors) {
  constexpr int lanes = W.features == 64 ? 16 : 32, packs = W.features == 256 ? 2 : 1;  // per row
  const T *const y = a.y.at(at.b, at.h), *const g = a.g.at(at.b, at.h);
#pragma unroll 2
  for (int r = int(threadIdx.x) / lanes; r < chunk; r += threads / lanes) {
    const int row = at.first + r, lane = int(threadIdx.x) % lanes;
    float4 products[packs] = {};
    float total = 0;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      const int from = (k * lanes + lane) * 4;
      if (row >= a.length || from >= a.w) continue;
      float d[4];
      const auto add = [&](int offset, float sign) {
        const auto f = *reinterpret_cast<const Pack<T, 4>*>(y + row * a.y.row + offset + from),
                   s = *reinterpret_cast<const Pack<T, 4>*>(g + row * a.g.row + offset + from);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float product = cast<float>(f.v[i]) * cast<float>(s.v[i]);
          d[i] = offset ? d[i] + sign * product : product;
          total += product;
        }
      };
      add(0, 1);
      if (a.pairs) add(a.w, -1);
      products[k] = {d[0], d[1], d[2], d[3]};
    }
#pragma unroll
    for (int other = 1; other < lanes; other *= 2)
      total += __shfl_xor_sync(0xffffffffu, total, other);
    int place = none;
    if (a.own_max && row < a.length) place = a.places[at.row + row];
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      const int from = (k * lanes + lane) * 4;
      const auto subtract_total = [&](float& d, int i) {
        if (place == from + i) d -= total;
        if (place == -1 - from - i) d += total;
      };
      subtract_total(products[k].x, 0), subtract_total(products[k].y, 1);
      subtract_total(products[k].z, 2), subtract_total(products[k].w, 3);
      *reinterpret_cast<float4*>(du.at(r, from)) = products[k];
    }
    if (lane == 0) factors[r] = -total * a.scale * a.scale;
  }
}

/// dx
template <class Plan>
__global__ void __launch_bounds__(threads, 1)
    feature_rows_backward(const __grid_constant__ Features<typename Plan::Element> a) {
  using T = typename Plan::Element;
  constexpr FeatureWidths W = Plan::widths;
  extern __shared__ __align__(1024) char memory[];
  const Inputs<W> x{memory + Plan::x};
  const Projection<W> w{memory + Plan::w};
  const Gradients<W> du{memory + Plan::more};
  float* const factors = reinterpret_cast<float*>(du.data + du.bytes);  // [64]
  const Place p;
  load_tile(w, a.projection, a.d, a.w, a.d);
#pragma unroll 1
  for (int tile = int(blockIdx.x); tile < a.count; tile += int(gridDim.x)) {
    const At<T> at(a, tile);
    if (!a.own_max) load_tile(x, a.x.at(at.b, at.h, at.first), a.x.row, a.length - at.first, a.d);
    find_du<T, W>(a, at, du, factors);
    __syncthreads();
    HalfRows<W.inputs> d = {};
#pragma unroll 1
    for (int k = 0; k < a.w; k += 16)
      multiply_half(d, p, rows_of<Side::left>(du, 16 * p.warp_row, k), w, k);
    T* rows[2];
    const float by[2] = {a.scale, a.scale};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = p.chunk_row(h);
      rows[h] = at.first + r < a.length ? a.to.at(at.b, at.h, at.first + r) : nullptr;
      const float factor = factors[r] / a.scale;
      if (!a.own_max)
#pragma unroll
        for (int c = 0; c < W.inputs / 16; ++c) {
          const float2 one = *reinterpret_cast<const float2*>(
              x.at(r, p.half<W.inputs>(c / 2) + c % 2 * 8 + p.column));
          float(&sums)[4] = d[c / 4][c / 2 % 2][c % 2];
          sums[2 * h] += factor * one.x, sums[2 * h + 1] += factor * one.y;
        }
    }
    store_half(rows, d, by, p, a.d);
    __syncthreads();
  }
}

template <class T>
Features<T> features_of(const Tensor& x, const RandomFeatures& s) {
  const int d = int(s.projection.size(1)), w = int(s.projection.size(0));
  const int64_t tiles = ceil_div(x.size(2), int64_t(chunk));
  return {.projection = s.projection.data<float>(),
          .bound = data_or_null<float>(s.bound),
          .heads = int(x.size(1)),
          .length = int(x.size(2)),
          .d = d,
          .w = w,
          .tiles = int(tiles),
          .count = int(x.size(0) * x.size(1) * tiles),
          .scale = float(std::pow(double(d), -0.25)),
          .log_root = float(std::log(double(s.pairs ? 2 * w : w)) / 2),
          .pairs = s.pairs,
          .own_max = s.own_max};
}

/// Calls go<FeatureWidths>() for D = d and a projection of w rows.
template <class F>
void with_sizes(int d, int w, F go) {
  if (d > 64) return go.template operator()<FeatureWidths{.inputs = 128, .features = 256}>();
  if (w > 128) return go.template operator()<FeatureWidths{.features = 256}>();
  w > 64 ? go.template operator()<FeatureWidths{.features = 128}>()
         : go.template operator()<FeatureWidths{}>();
}

/// bound []: max(0, ½ max |ω|² − limit) over the rows ω of a projection [rows, d]. One block.
__global__ void __launch_bounds__(threads, 1)
    feature_bound(float* bound, const float* projection, int rows, int d, double limit) {
  double largest = 0;
#pragma unroll 1
  for (int row = int(threadIdx.x) / 32; row < rows; row += threads / 32) {
    double square = 0;
#pragma unroll 1
    for (int i = int(threadIdx.x) % 32; i < d; i += 32) {
      const auto w = double(projection[row * d + i]);
      square += w * w;
    }
    largest = Max()(combine<32>(square, Sum()), largest);
  }
  largest = combine<threads>(largest, Max());
  const double excess = largest / 2 - limit;
  if (threadIdx.x == 0) *bound = excess < 0 ? 0.0f : float(excess);  // NaN stays
}

}  // namespace

bool serves_random_features(const Tensor& x, const Tensor& projection) {
  if (x.dtype() != f32 && x.dtype() != bf16) return false;
  const int64_t whole = 16 / item_size(x.dtype()), d = projection.size(1), w = projection.size(0);
  return x.numel() > 0 && d % whole == 0 && d <= 128 && w % whole == 0 && w <= 256 &&
         x.numel() / d < int64_t(1) << 30;
}

Tensor random_feature_bound(const Tensor& projection, double limit) {
  const Tensor w = projection.contiguous();
  Tensor bound = empty({}, options_of(w));
  launch("random_features", w.device().index, feature_bound, 1, threads, bound.data<float>(),
         static_cast<const float*>(w.data<float>()), int(w.size(0)), int(w.size(1)), limit);
  return bound;
}

void random_features(const Tensor& input, const RandomFeatures& s, const Tensor& y,
                     const Tensor& places) {
  const Tensor x = aligned_rows(input);
  dispatch_among<float, BFloat16>(x.dtype(), [&]<class T>() {
    Features<T> args = features_of<T>(x, s);
    args.x = head_rows<const T>(x), args.to = head_rows<T>(y);
    if (places.defined()) args.places = places.data<int>();
    with_sizes(args.d, args.w, [&]<FeatureWidths W>() {
      launch_with_shared("random_features", x.device().index, feature_rows<FeaturePlan<T, W>>,
                         unsigned(std::min(args.count, 2 * planned_sms)), threads,
                         FeaturePlan<T, W>::forward, args);
    });
  });
}

void random_features_backward(const Tensor& input, const RandomFeatures& s, const Tensor& features,
                              const Tensor& grad, const Tensor& places, const Tensor& dx) {
  const Tensor y = aligned_rows(features), g = aligned_rows(grad),
               x = input.defined() ? aligned_rows(input) : Tensor();
  dispatch_among<float, BFloat16>(y.dtype(), [&]<class T>() {
    Features<T> args = features_of<T>(dx, s);
    args.y = head_rows<const T>(y), args.g = head_rows<const T>(g), args.to = head_rows<T>(dx);
    if (x.defined()) args.x = head_rows<const T>(x);
    if (places.defined()) args.places = places.data<int>();
    with_sizes(args.d, args.w, [&]<FeatureWidths W>() {
      launch_with_shared("random_features_backward", dx.device().index,
                         feature_rows_backward<FeaturePlan<T, W>>,
                         unsigned(std::min(args.count, 2 * planned_sms)), threads,
                         FeaturePlan<T, W>::backward, args);
    });
  });
}

}  // namespace stretto::cuda
