// Codes of filtered noise, made on chip and applied there (formulas: ops/spe/spe_conv.cpp).
//
// A block has four runs of 16 positions (spe_conv.cuh), 32 realizations and four matrices of the
// batch, for queries and keys, which share the noise: four warps each. It goes through the
// dimensions: draws the noise of a row of the plane, filters it in registers, goes on with the next
// row where filters have several, and uses the code for the batch. Positions around a tile are
// drawn by its neighbors, too. For f32 and bf16, filters whose noise fits in shared memory. Tested
// against the CPU.
#include "cuda/reduce.h"
#include "cuda/runtime/unfused.h"
#include "cuda/spe/spe_conv.cuh"

namespace stretto::cuda {
namespace noise {

constexpr int groups = warps / 2, places = groups * run;           // of a side
constexpr int batch = 4, x_dims = 8, x_size = 2 * batch * places;  // of a dimension

/// A thread's tile and its place there.
struct Where {
  int head, c0, b0, lane, side, across, down;
  int64_t row, column;  // of the tile
  __device__ explicit Where(const Problem& p) {
    head = int(blockIdx.y) / p.r_tiles;
    c0 = int(blockIdx.y) % p.r_tiles * lanes;
    b0 = int(blockIdx.z) * batch;
    const int warp = int(threadIdx.x) / 32, group = warp % groups;
    lane = int(threadIdx.x) % 32;
    side = warp / groups;
    across = group % p.across;
    down = group / p.across;
    row = p.row + int(blockIdx.x) / p.tiles_across * (groups / p.across);
    column = p.column + int64_t(int(blockIdx.x) % p.tiles_across) * p.across * run;
  }
  /// The row of the operand that a place of the tile stands for, or −1.
  __device__ int operand_row(const Problem& p, int of, int place) const {
    const int group = place / run;
    return noise::operand_row(p, of, row + group / p.across,
                              column + group % p.across * run + place % run);
  }
  __device__ int own_place() const { return int(threadIdx.x) / 32 % groups * run; }
};

/// Shared memory: noise [.., lanes], the filters of a dimension reversed [2, lines, padded], and of
/// x or dx so many dimensions [x_dims, 2, batch, places].
struct Room {
  float *z, *w, *x;
  __device__ Room(float* memory, const Problem& p)
      : z(memory + ahead), w(z + noise_columns(p) * lanes), x(w + 2 * p.lines * p.padded) {}
  STRETTO_HD static int noise_columns(const Problem& p) { return p.across * run + p.padded - 1; }
  static int64_t bytes(const Problem& p) {
    return 4 *
           (ahead + int64_t(noise_columns(p)) * lanes + 2 * p.lines * p.padded + x_dims * x_size);
  }
};

__device__ inline void load_filters(float* to, const Problem& p, int64_t index) {
#pragma unroll 1
  for (int i = threadIdx.x; i < 2 * p.lines * p.padded; i += threads) {
    const int line = i / p.padded, u = i % p.padded, side = line / p.lines;
    const float* const from = p.w[side] + (index * p.lines + line % p.lines) * p.taps;
    to[i] = u < p.taps ? from[p.taps - 1 - u] : 0.0f;
  }
}

/// The code of dimension d at the thread's places. `before` is called when all threads are done
/// with shared memory, and has ended for all before the code is there.
template <class Before>
__device__ inline void make_code(float (&code)[run], const Problem& p, RandomKey key,
                                 const Where& where, const Room& room, int d, Before before) {
  const int64_t index = int64_t(where.head) * p.d + d;
  const int c = where.c0 + where.lane;
  const float e = p.e && c < p.r ? p.e[index * p.r + c] : 0.0f;
#pragma unroll
  for (int i = 0; i < run; ++i) code[i] = e;
  const int rows = groups / p.across + p.lines - 1;
#pragma unroll 1
  for (int i = 0; i < rows; ++i) {
    __syncthreads();  // what was there has been read
    if (i == 0) {
      before();
      load_filters(room.w, p, index);
    }
    draw(room.z, p, key, index, where.row + i, where.column, where.c0, Room::noise_columns(p));
    __syncthreads();
    const int line = where.down + p.lines - 1 - i;
    if (p.n[where.side] == 0 || unsigned(line) >= unsigned(p.lines)) continue;
    const float* const w = room.w + (where.side * p.lines + line) * p.padded;
    correlate(code, room.z + where.across * run * lanes + where.lane, p.padded,
              [&](int u, float(&f)[step]) {
#pragma unroll
                for (int q = 0; q < step; q += 4) {
                  const auto four = *reinterpret_cast<const Pack<float, 4>*>(w + u + q);
#pragma unroll
                  for (int j = 0; j < 4; ++j) f[q + j] = four.v[j];
                }
              });
  }
}

/// room.x ← dimensions d0 … of the tile's rows, zeros around.
template <class S>
__device__ inline void load_rows(const Room& room, const Sides<const S>& x, const Problem& p,
                                 const Where& where, int d0) {
#pragma unroll 1
  for (int i = threadIdx.x; i < x_size; i += threads) {
    const int side = i / (batch * places), b = where.b0 + i / places % batch;
    const int l = where.operand_row(p, side, i % places);
    const HeadRows<const S>& rows = x.of[side];
    const S* const from = rows.at(b, where.head, l) + d0;
    const int left = l >= 0 && b < p.b ? p.d - d0 : 0;
#pragma unroll
    for (int q = 0; q < x_dims; q += 4) {
      Pack<S, 4> v = {};
      if (rows.packs) {
        if (q < left) v = *reinterpret_cast<const Pack<S, 4>*>(from + q);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (q + j < left) v.v[j] = from[q + j];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) room.x[(q + j) * x_size + i] = cast<float>(v.v[j]);
    }
  }
}

/// y = Σ_d x_d (C_d + e_d)
template <class S>
__global__ void __launch_bounds__(threads, 2)
    apply_noise(const __grid_constant__ Sides<S> y, const __grid_constant__ Sides<const S> x,
                const __grid_constant__ Problem p) {
  extern __shared__ float memory[];
  const RandomKey key = key_now(p.key);
  const Where where(p);
  const Room room(memory, p);
  const float* const own = room.x + where.side * batch * places + where.own_place();
  float sums[batch][run] = {};
#pragma unroll 1
  for (int d = 0; d < p.d; ++d) {
    float code[run];
    make_code(code, p, key, where, room, d, [&] {
      if (d % x_dims == 0) load_rows(room, x, p, where, d);
    });
#pragma unroll
    for (int b = 0; b < batch; ++b)
#pragma unroll
      for (int q = 0; q < run; q += 4) {
        const auto four =
            *reinterpret_cast<const Pack<float, 4>*>(own + d % x_dims * x_size + b * places + q);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[b][q + j] = fmaf(four.v[j], code[q + j], sums[b][q + j]);
      }
  }
  const int c = where.c0 + where.lane;
  if (c >= p.r) return;
  const HeadRows<S>& rows = y.of[where.side];
#pragma unroll
  for (int i = 0; i < run; ++i) {
    const int l = where.operand_row(p, where.side, where.own_place() + i);
    if (l < 0) continue;
    S* const to = rows.at(where.b0, where.head, l) + c;
#pragma unroll
    for (int b = 0; b < batch; ++b)
      if (where.b0 + b < p.b) to[b * rows.batch] = cast<S>(sums[b][i]);
  }
}

/// Numbers of a matrix of the batch lie so in dx's room: a warp writes those of two matrices.
__device__ inline int swapped(int b, int place) { return place ^ (b % 2 * run); }

/// Dimensions d0 … of dx ← room.x.
template <class Out>
__device__ inline void store_rows(const Sides<Out>& dx, int64_t part_q, int64_t part_k,
                                  const Room& room, const Problem& p, const Where& where, int d0) {
#pragma unroll 1
  for (int i = threadIdx.x; i < x_size; i += threads) {
    const int side = i / (batch * places), b = where.b0 + i / places % batch;
    const int l = where.operand_row(p, side, i % places);
    if (l < 0 || b >= p.b) continue;
    const HeadRows<Out>& rows = dx.of[side];
    const int64_t part = int(blockIdx.y) % p.r_tiles * (side == 0 ? part_q : part_k);
    Out* const to = rows.at(b, where.head, l) + part + d0;
#pragma unroll
    for (int q = 0; q < x_dims; q += 4) {
      if (d0 + q >= p.d) break;
      Pack<Out, 4> v;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        v.v[j] =
            d0 + q + j < p.d ? cast<Out>(room.x[(q + j) * x_size + swapped(i / places, i)]) : Out{};
      if (rows.packs) {
        *reinterpret_cast<Pack<Out, 4>*>(to + q) = v;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (d0 + q + j < p.d) to[q + j] = v.v[j];
      }
    }
  }
}

/// dx = Σ_r g (C + e); of several tiles of realizations each writes a part.
template <class S, class Out>
__global__ void __launch_bounds__(threads, 2)
    noise_gradients(const __grid_constant__ Sides<Out> dx, int64_t part_q, int64_t part_k,
                    const __grid_constant__ Sides<const S> g, const __grid_constant__ Problem p) {
  extern __shared__ float memory[];
  const RandomKey key = key_now(p.key);
  const Where where(p);
  const Room room(memory, p);
  const int c = where.c0 + where.lane;
  float* const own = room.x + where.side * batch * places;
  const HeadRows<const S>& rows = g.of[where.side];
  float slopes[batch][run];
#pragma unroll
  for (int i = 0; i < run; ++i) {
    const int l = where.operand_row(p, where.side, where.own_place() + i);
    const S* const from = rows.at(where.b0, where.head, l) + c;
#pragma unroll
    for (int b = 0; b < batch; ++b)
      slopes[b][i] =
          l >= 0 && c < p.r && where.b0 + b < p.b ? cast<float>(from[b * rows.batch]) : 0;
  }
#pragma unroll 1
  for (int d = 0; d < p.d; ++d) {
    float code[run];
    make_code(code, p, key, where, room, d, [&] {
      if (d > 0 && d % x_dims == 0) store_rows(dx, part_q, part_k, room, p, where, d - x_dims);
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float v[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) v[i] = slopes[2 * half + i / run][i % run] * code[i % run];
      const float sum = sum_across(v);
      const int b = 2 * half + where.lane / run;
      own[d % x_dims * x_size + b * places + swapped(b, where.own_place() + where.lane % run)] =
          sum;
    }
  }
  __syncthreads();
  store_rows(dx, part_q, part_k, room, p, where, (p.d - 1) / x_dims * x_dims);
}

Plan plan_of(const NoiseCode& code, const NoiseSide (&sides)[2], int runs, bool stacked) {
  const Tensor& w = code.w[0];
  Plan plan = {};
  Problem& p = plan.p;
  p.apart = code.apart, p.pitch = code.pitch, p.columns = code.columns;
  p.e = code.e.defined() ? code.e.data<float>() : nullptr;
  p.heads = int(w.size(0)), p.d = int(w.size(1)), p.r = int(code.realizations);
  p.lines = int(w.size(2)), p.taps = int(w.size(3));
  p.padded = int(ceil_div(p.taps, step) * step);
  p.r_tiles = int(ceil_div(p.r, lanes));
  int64_t begin = INT64_MAX, end = 0;
  for (int i = 0; i < 2; ++i) {
    const NoiseSide& side = sides[i];
    p.w[i] = code.w[i].data<float>();
    p.at[i] = side.at;
    if (!side.y.defined() || side.y.numel() == 0) continue;
    p.n[i] = int(side.y.size(2)), p.b = int(side.y.size(0));
    p.key = draw_key(code.key, side.y.device().index);
    begin = std::min(begin, side.at);
    end = std::max(end, side.at + side.y.size(2));
  }
  if (end == 0) return plan;
  const int64_t first = begin / code.columns, last = (end - 1) / code.columns;
  p.row = first;
  p.column = first == last ? begin - first * code.columns : 0;
  const int64_t width = first == last ? end - begin : code.columns;
  p.across = runs;
  if (stacked && last > first)
    while (p.across > 1 && p.across / 2 * run >= width) p.across /= 2;
  const int down = stacked ? runs / p.across : 1;
  p.tiles_across = int(ceil_div(width, p.across * run));
  plan.tiles = ceil_div(last - first + 1, down) * p.tiles_across;
  check(plan.tiles < INT32_MAX && int64_t(p.heads) * p.r_tiles <= 65535, "spe",
        "too many positions, heads or realizations: ", end - begin, ", ", p.heads, ", ", p.r);
  return plan;
}

}  // namespace noise

using namespace noise;

bool makes_noise_codes(int64_t lines, int64_t taps) {
  constexpr int64_t most = 100 << 10;  // so that two blocks share a multiprocessor
  Problem p = {};
  if (lines > 1 << 10 || taps > 1 << 10) return false;
  p.across = groups, p.lines = int(lines), p.padded = int(ceil_div(taps, step) * step);
  return Room::bytes(p) <= most;
}

void apply_noise_code(const NoiseCode& code, const NoiseSide (&sides)[2]) {
  const Plan plan = plan_of(code, sides, groups, true);
  if (plan.tiles == 0) return;
  const Problem& p = plan.p;
  const dim3 grid(unsigned(plan.tiles), unsigned(p.heads * p.r_tiles),
                  unsigned(ceil_div(p.b, batch)));
  dispatch_among<BFloat16, float>(sides[0].x.dtype(), [&]<class S>() {
    launch_with_shared(
        "spe", sides[0].x.device().index, apply_noise<S>, grid, threads, Room::bytes(p),
        sides_of<S>(sides, 1, [](const NoiseSide& o, int) -> const Tensor& { return o.y; }),
        sides_of<const S>(sides, 4, [](const NoiseSide& o, int) -> const Tensor& { return o.x; }),
        p);
  });
}

void noise_code_dx(const NoiseCode& code, const NoiseSide (&sides)[2], const Tensor (&dx)[2]) {
  NoiseSide wanted[2] = {sides[0], sides[1]};
  for (int i = 0; i < 2; ++i)
    if (!dx[i].defined()) wanted[i].y = {};
  const Plan plan = plan_of(code, wanted, groups, true);
  const Problem& p = plan.p;
  if (plan.tiles == 0) {  // no gradients, or no batch: nothing to write
    return;
  }
  const Device device = sides[0].x.device();
  const dim3 grid(unsigned(plan.tiles), unsigned(p.heads * p.r_tiles),
                  unsigned(ceil_div(p.b, batch)));
  dispatch_among<BFloat16, float>(sides[0].x.dtype(), [&]<class S>() {
    const auto g =
        sides_of<const S>(wanted, 1, [](const NoiseSide& o, int) -> const Tensor& { return o.y; });
    const auto run_to = [&]<class Out>(const Tensor(&to)[2], int64_t part_q, int64_t part_k) {
      launch_with_shared(
          "spe", device.index, noise_gradients<S, Out>, grid, threads, Room::bytes(p),
          sides_of<Out>(wanted, 4, [&](const NoiseSide&, int i) -> const Tensor& { return to[i]; }),
          part_q, part_k, g, p);
    };
    if (p.r_tiles == 1) return run_to.template operator()<S>(dx, 0, 0);
    Tensor parts[2], first[2];
    int64_t sizes[2] = {};
    for (int i = 0; i < 2; ++i) {
      if (p.n[i] == 0) continue;
      const Shape& s = dx[i].shape();
      parts[i] = empty({p.r_tiles, s[0], s[1], s[2], s[3]}, {.dtype = f32, .device = device});
      first[i] = parts[i].select(0, 0);
      sizes[i] = dx[i].numel();
    }
    run_to.template operator()<float>(first, sizes[0], sizes[1]);
    for (int i = 0; i < 2; ++i) {
      Tensor to = dx[i];
      if (p.n[i] > 0) to.copy_(sum(parts[i], {0}, false));
    }
  });
}

}  // namespace stretto::cuda
