// Random features, forward and backward, each in one pass.
//
// A block keeps the projection ω in shared memory, in f32, and goes over tiles of 64 rows of a
// head. Products are those of f32 (cuda/runtime/blocks.cuh), also of bf16: a u of 20 that is off by
// 0.4 % is off by 8 % as a power. Forward, u stays in registers, 16 rows and half of the features
// to a warp; backward, du = ±g·y (a warp for a row) goes through shared memory to
//
//     dx = D^(−1/4) du ω − x Σ g·y / √D      or, of own_max, du − Σ g·y at the place of the maximum
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
  Rows<const T> x, y, g;
  Rows<T> to;  // y, or dx
  const float* projection;
  const float* bound;
  int* places;
  int heads, length, d, w;
  int tiles, count;  // of a head, of all
  float scale, log_root;
  bool pairs, own_max;
};

/// The tile that a block is at.
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

/// Rows of x [rows, width] as f32 in a tile, zeros around them.
template <int Width, class T>
__device__ inline void load_tile(const Tile<float, Width>& to, int height, const T* x,
                                 int64_t apart, int rows, int width) {
  constexpr int pieces = Width / 4;
#pragma unroll 4
  for (int c = int(threadIdx.x); c < height * pieces; c += threads) {
    const int r = c / pieces, column = c % pieces * 4;
    Pack<T, 4> from = {};
    if (r < rows && column < width)
      from = *reinterpret_cast<const Pack<T, 4>*>(x + r * apart + column);
    *reinterpret_cast<float4*>(to.at(r, column)) = {cast<float>(from.v[0]), cast<float>(from.v[1]),
                                                    cast<float>(from.v[2]), cast<float>(from.v[3])};
  }
}

/// A row's largest number so far: a NaN wins, then the first one.
struct Top {
  float size = -INFINITY;
  int column = 0, code = 0;
  __device__ void meet(const Top& o) {
    const bool less = o.size > size || (o.size == size && o.column < column);
    if (o.size != o.size || (size == size && less)) *this = o;
  }
};

template <int JD, int JW>
struct FeaturePlan {
  static constexpr int x = 0, w = chunk * 64 * JD * 4, more = w + 64 * JW * 64 * JD * 4,
                       forward = more + 2 * chunk * 12,
                       backward = more + chunk * 64 * JW * 4 + chunk * 4;
  static_assert(backward <= 227 * 1024);
};

/// y and places
template <class T, int JD, int JW>
__global__ void __launch_bounds__(threads, 1) feature_rows(const __grid_constant__ Features<T> a) {
  using Here = FeaturePlan<JD, JW>;
  extern __shared__ __align__(1024) char memory[];
  const Tile<float, 64 * JD> x{memory + Here::x}, w{memory + Here::w};
  Top* const tops = reinterpret_cast<Top*>(memory + Here::more);  // [2, 64]
  const Place p;
  const auto column = [&](int c) { return 32 * JW * p.side + 16 * c; };
  load_tile(w, 64 * JW, a.projection, a.d, a.w, a.d);
  const float bound = a.bound ? *a.bound : 0;
#pragma unroll 1
  for (int tile = int(blockIdx.x); tile < a.count; tile += int(gridDim.x)) {
    const At<T> at(a, tile);
    load_tile(x, chunk, a.x.at(at.b, at.h) + at.first * a.x.row, a.x.row, a.length - at.first, a.d);
    __syncthreads();
    float u[2 * JW][2][4] = {}, square[2] = {};
#pragma unroll 1
    for (int k = 0; k < a.d; k += 16) {
      const Left<float> mine = left(x, 16 * p.slab, k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 two = mine.values(i / 2, i % 2);
        square[i / 2] += two.x * two.x + two.y * two.y;
      }
#pragma unroll
      for (int c = 0; c < 2 * JW; ++c) multiply(u[c], mine, right_turned(w, column(c), k));
    }
#pragma unroll
    for (int i = 0; i < 16 * JW; ++i) u[i / 8][i / 4 % 2][i % 4] *= a.scale;
    float less[2];
    Top top[2];
    if (a.own_max) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < 8 * JW; ++i) {
          const int at_column = column(i / 4) + i / 2 % 2 * 8 + p.column + i % 2;
          const float one = u[i / 4][i / 2 % 2][2 * h + i % 2];
          if (at_column < a.w)
            top[h].meet(a.pairs ? Top{fabsf(one), at_column, one < 0 ? -1 - at_column : at_column}
                                : Top{one, at_column, at_column});
        }
#pragma unroll
        for (int lane = 1; lane < 4; lane *= 2)
          top[h].meet({__shfl_xor_sync(0xffffffffu, top[h].size, lane),
                       __shfl_xor_sync(0xffffffffu, top[h].column, lane),
                       __shfl_xor_sync(0xffffffffu, top[h].code, lane)});
        if (p.column == 0) tops[p.side * chunk + 16 * p.slab + p.row + 8 * h] = top[h];
      }
      __syncthreads();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        top[h].meet(tops[(1 - p.side) * chunk + 16 * p.slab + p.row + 8 * h]);
        less[h] = top[h].size;
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) less[h] = row_sum(square[h]) * (0.5f * a.scale * a.scale);
    }
    T* rows[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = at.first + 16 * p.slab + p.row + 8 * h;
      less[h] += bound;
      rows[h] = row < a.length ? a.to.at(at.b, at.h) + row * a.to.row : nullptr;
      if (a.places && rows[h] && p.side == 0 && p.column == 0) a.places[at.row + row] = top[h].code;
    }
    const float by[2] = {1, 1};
#pragma unroll 1
    for (int sign = 0; sign < (a.pairs ? 2 : 1); ++sign) {
#pragma unroll
      for (int c = 0; c < JW; ++c) {
        float y[2][2][4];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const float one = u[2 * c + i / 8][i / 4 % 2][i % 4];
          y[i / 8][i / 4 % 2][i % 4] =
              math::exp(((sign ? -one : one) - less[i % 4 / 2]) - a.log_root);
        }
        T* const to[2] = {rows[0] ? rows[0] + sign * a.w : nullptr,
                          rows[1] ? rows[1] + sign * a.w : nullptr};
        store_sums(to, y, by, column(2 * c), a.w);
      }
    }
    __syncthreads();
  }
}

/// dx
template <class T, int JD, int JW>
__global__ void __launch_bounds__(threads, 1)
    feature_rows_backward(const __grid_constant__ Features<T> a) {
  using Here = FeaturePlan<JD, JW>;
  constexpr int lanes = JW == 1 ? 16 : 32, packs = JW == 4 ? 2 : 1;  // of a row
  extern __shared__ __align__(1024) char memory[];
  const Tile<float, 64 * JD> x{memory + Here::x}, w{memory + Here::w};
  const Tile<float, 64 * JW> du{memory + Here::more};
  float* const factors = reinterpret_cast<float*>(du.data + chunk * 64 * JW * 4);  // [64]
  const Place p;
  const auto column = [&](int c) { return 32 * JD * p.side + 16 * c; };
  load_tile(w, 64 * JW, a.projection, a.d, a.w, a.d);
#pragma unroll 1
  for (int tile = int(blockIdx.x); tile < a.count; tile += int(gridDim.x)) {
    const At<T> at(a, tile);
    if (!a.own_max)
      load_tile(x, chunk, a.x.at(at.b, at.h) + at.first * a.x.row, a.x.row, a.length - at.first,
                a.d);
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
        const auto put = [&](float& d, int i) {
          if (place == from + i) d -= total;
          if (place == -1 - from - i) d += total;
        };
        put(products[k].x, 0), put(products[k].y, 1), put(products[k].z, 2), put(products[k].w, 3);
        *reinterpret_cast<float4*>(du.at(r, from)) = products[k];
      }
      if (lane == 0) factors[r] = -total * a.scale * a.scale;
    }
    __syncthreads();
    float d[JD][2][2][4] = {};
#pragma unroll 1
    for (int k = 0; k < a.w; k += 16) {
      const Left<float> mine = left(du, 16 * p.slab, k);
#pragma unroll
      for (int c = 0; c < 2 * JD; ++c) multiply(d[c / 2][c % 2], mine, right(w, k, column(c)));
    }
    T* rows[2];
    const float by[2] = {a.scale, a.scale};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = 16 * p.slab + p.row + 8 * h;
      rows[h] = at.first + r < a.length ? a.to.at(at.b, at.h) + (at.first + r) * a.to.row : nullptr;
      const float factor = factors[r] / a.scale;
      if (!a.own_max)
#pragma unroll
        for (int c = 0; c < 4 * JD; ++c) {
          const float2 one =
              *reinterpret_cast<const float2*>(x.at(r, column(c / 2) + c % 2 * 8 + p.column));
          float(&sums)[4] = d[c / 4][c / 2 % 2][c % 2];
          sums[2 * h] += factor * one.x, sums[2 * h + 1] += factor * one.y;
        }
    }
#pragma unroll
    for (int c = 0; c < JD; ++c) store_sums(rows, d[c], by, column(2 * c), a.d);
    __syncthreads();
  }
}

template <class T>
Features<T> call_of(const Tensor& x, const RandomFeatures& s) {
  const int d = int(s.projection.size(1)), w = int(s.projection.size(0));
  const int64_t tiles = ceil_div(x.size(2), int64_t(chunk));
  return {.projection = s.projection.data<float>(),
          .bound = s.bound.defined() ? s.bound.data<float>() : nullptr,
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

/// go(JD, JW) for these widths.
template <class F>
void with_sizes(int d, int w, F go) {
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Four = std::integral_constant<int, 4>;
  if (d > 64) return go(Two(), Four());
  w > 128 ? go(One(), Four()) : w > 64 ? go(One(), Two()) : go(One(), One());
}

}  // namespace

bool serves_random_features(const Tensor& x, const Tensor& projection) {
  if (x.dtype() != f32 && x.dtype() != bf16) return false;
  const int64_t whole = 16 / item_size(x.dtype()), d = projection.size(1), w = projection.size(0);
  return x.numel() > 0 && d % whole == 0 && d <= 128 && w % whole == 0 && w <= 256 &&
         x.numel() / d < int64_t(1) << 30;
}

void random_features(const Tensor& input, const RandomFeatures& s, const Tensor& y,
                     const Tensor& places) {
  const Tensor x = aligned_rows(input);
  with_type(x.dtype(), [&]<class T>() {
    Features<T> call = call_of<T>(x, s);
    call.x = rows_of<const T>(x), call.to = rows_of<T>(y);
    if (places.defined()) call.places = places.data<int>();
    with_sizes(call.d, call.w, [&](auto jd, auto jw) {
      constexpr int JD = decltype(jd)::value, JW = decltype(jw)::value;
      launch_with_shared("random_features", x.device().index, feature_rows<T, JD, JW>,
                         unsigned(std::min(call.count, 2 * planned_sms)), threads,
                         FeaturePlan<JD, JW>::forward, call);
    });
  });
}

void random_features_backward(const Tensor& input, const RandomFeatures& s, const Tensor& features,
                              const Tensor& grad, const Tensor& places, const Tensor& dx) {
  const Tensor y = aligned_rows(features), g = aligned_rows(grad),
               x = input.defined() ? aligned_rows(input) : Tensor();
  with_type(y.dtype(), [&]<class T>() {
    Features<T> call = call_of<T>(dx, s);
    call.y = rows_of<const T>(y), call.g = rows_of<const T>(g), call.to = rows_of<T>(dx);
    if (x.defined()) call.x = rows_of<const T>(x);
    if (places.defined()) call.places = places.data<int>();
    with_sizes(call.d, call.w, [&](auto jd, auto jw) {
      constexpr int JD = decltype(jd)::value, JW = decltype(jw)::value;
      launch_with_shared("random_features_backward", dx.device().index,
                         feature_rows_backward<T, JD, JW>,
                         unsigned(std::min(call.count, 2 * planned_sms)), threads,
                         FeaturePlan<JD, JW>::backward, call);
    });
  });
}

}  // namespace stretto::cuda
