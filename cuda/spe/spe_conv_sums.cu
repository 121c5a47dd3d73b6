// Sums for the gradients of a code of filtered noise: over positions, realizations and the batch.
//
// A block has one dimension, 32 realizations and up to 128 taps of one row of the filters. It loops
// over tiles of positions: generates their noise, and computes dC = Σ_b x g of both sides in shared
// memory. A warp has 16 taps; if there are fewer taps, several warps have the same ones for
// different positions. Sums stay in registers until the end (spe_conv.cuh). For f32 and bf16.
// Tested against the CPU.
#include "cuda/reduce.h"
#include "cuda/runtime/unfused.h"
#include "cuda/spe/spe_conv.cuh"

namespace stretto::cuda {
namespace noise {

constexpr int most_runs = 4, most_taps = warps * run;

/// How a block's warps share taps and positions.
struct Share {
  int tap_blocks;      // of a row of a filter
  int groups;          // of taps, a power of two
  int parts;           // of positions
  int64_t tiles, per;  // tiles of positions: all, and per block
};

/// The sums of a block: taps u0 … of a line of a dimension's filters, and realizations from c0 on.
struct Target {
  int index, line, u0, head, d, c0;
  __device__ Target(const Problem& p, const Share& share) {
    const int per_index = share.tap_blocks * p.lines;
    index = int(blockIdx.x) / per_index;
    line = int(blockIdx.x) % per_index / share.tap_blocks;
    u0 = int(blockIdx.x) % share.tap_blocks * most_taps;
    head = index / p.d;
    d = index % p.d;
    c0 = int(blockIdx.y) * lanes;
  }
};

/// dc [2, width, lanes] = Σ_b x g at (row, column …), which is also added to `sums` of both sides.
template <class S>
__device__ __forceinline__ void find_dc(float* dc, float (&sums)[2], const Sides<const S>& x,
                                        const Sides<const S>& g, const Problem& p, const Target& to,
                                        int64_t row, int64_t column, int width) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, c = to.c0 + lane;
#pragma unroll 1
  for (int i = warp; i < width; i += warps)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int l = operand_row(p, side, row, column + i);
      float sum = 0;
      if (l >= 0 && c < p.r) {
        const HeadRows<const S>&xs = x.of[side], &gs = g.of[side];
        const S* from = xs.at(0, to.head, l) + to.d;
        const S* slope = gs.at(0, to.head, l) + c;
#pragma unroll 4
        for (int b = 0; b < p.b; ++b, from += xs.batch, slope += gs.batch)
          sum = fmaf(cast<float>(*from), cast<float>(*slope), sum);
      }
      sums[side] += sum;
      dc[(side * width + i) * lanes + lane] = sum;
    }
}

/// Adds the warps' sums of taps (a lane has those of a realization) and of dC, and stores them.
__device__ __forceinline__ void store_sums(float* dw, float* de, float* memory,
                                           const float (&taps)[2][run], const float (&rows)[2],
                                           const Problem& p, const Share& share, const Target& to) {
  const int t = int(threadIdx.x), warp = t / 32, lane = t % 32, c = to.c0 + lane;
  float v[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = taps[i / run][i % run];
  const float sum = sum_across(v);
  __syncthreads();
  float *const by_warp = memory, *const rows_by_warp = memory + warps * 32;
  const auto swapped = [](int of, int i) { return of * 32 + (i ^ (of % 2 * run)); };
  by_warp[swapped(warp, lane)] = sum;
  rows_by_warp[t] = rows[0];
  rows_by_warp[threads + t] = rows[1];
  __syncthreads();
  const int64_t n = int64_t(p.heads) * p.d, chunk = int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int64_t at = (chunk * 2 + side) * n + to.index;
    const int u = to.u0 + t;
    if (t < share.groups * run && u < p.taps) {
      float total = 0;
#pragma unroll 1
      for (int i = 0; i < share.parts; ++i)
        total += by_warp[swapped(i * share.groups + t / run, side * run + t % run)];
      dw[(at * p.lines + to.line) * p.taps + p.taps - 1 - u] = total;
    }
    if (to.u0 == 0 && to.line == 0 && t < lanes) {
      float total = 0;
#pragma unroll
      for (int i = 0; i < warps; ++i) total += rows_by_warp[side * threads + i * 32 + t];
      if (c < p.r) de[((int64_t(blockIdx.z) * 2 + side) * n + to.index) * p.r + c] = total;
    }
  }
}

/// dw [z, y, 2, H · D, lines, taps], de [z, y, 2, H · D, R] for grid [.., y, z]: each y has 32
/// elements of a row of R.
template <class S>
__global__ void __launch_bounds__(threads, 2)
    sum_noise(float* dw, float* de, const __grid_constant__ Sides<const S> x,
              const __grid_constant__ Sides<const S> g, const __grid_constant__ Problem p,
              const Share share) {
  extern __shared__ float memory[];
  const RandomKey key = key_now(p.key);
  const int width = p.across * run, warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int columns = width + share.groups * run - 1;
  float *const z = memory + ahead, *const dc = z + columns * lanes;  // dc [2, width, lanes]
  const Target to(p, share);
  const int group = warp % share.groups, part = warp / share.groups, length = width / share.parts;
  float sums[2][run] = {}, rows[2] = {};
  const int64_t end = min(share.tiles, (int64_t(blockIdx.z) + 1) * share.per);
#pragma unroll 1
  for (int64_t tile = blockIdx.z * share.per; tile < end; ++tile) {
    const int across = int(tile) % p.tiles_across, down = int(tile) / p.tiles_across;
    const int64_t row = p.row + down, column = p.column + int64_t(across) * width;
    __syncthreads();  // until all threads have read what was there
    draw(z, p, key, to.index, row + p.lines - 1 - to.line, column + to.u0, to.c0, columns);
    find_dc(dc, rows, x, g, p, to, row, column, width);
    __syncthreads();
    if (part >= share.parts) continue;
    const float* const from = z + (part * length + group * run) * lanes + lane;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (p.n[side] == 0) continue;
      const float* const of = dc + (side * width + part * length) * lanes + lane;
      correlate(sums[side], from, length, [&](int u, float(&f)[step]) {
#pragma unroll
        for (int j = 0; j < step; ++j) f[j] = of[(u + j) * lanes];
      });
    }
  }
  store_sums(dw, de, memory, sums, rows, p, share, to);
}

}  // namespace noise

using namespace noise;

NoiseSums noise_code_sums(const NoiseCode& code, const NoiseSide (&sides)[2]) {
  const Tensor& w = code.w[0];
  const int64_t h = w.size(0), d = w.size(1), r = code.realizations;
  const TensorOptions options{.dtype = f32, .device = w.device()};
  const Plan plan = plan_of(code, sides, most_runs, false);
  if (plan.tiles == 0) {
    NoiseSums none{empty({2, h, d, w.size(2), w.size(3)}, options), empty({h, d, r}, options)};
    none.w.zero_(), none.e.zero_();
    return none;
  }
  Problem p = plan.p;
  Share share = {};
  share.tap_blocks = int(ceil_div(p.taps, most_taps));
  share.groups = 1;
  while (share.groups * run < std::min(p.taps, most_taps)) share.groups *= 2;
  share.parts = std::min(warps / share.groups, p.across * run / step);
  share.tiles = plan.tiles;
  const int64_t blocks = h * d * p.lines * share.tap_blocks;
  check(blocks < INT32_MAX, "spe", "too many filters: ", w);
  const int64_t splits =
      std::clamp<int64_t>(8 * planned_sms / (blocks * p.r_tiles), 1, share.tiles);
  share.per = ceil_div(share.tiles, splits);
  const dim3 grid(unsigned(blocks), unsigned(p.r_tiles),
                  unsigned(ceil_div(share.tiles, share.per)));
  const Tensor dw = empty({int64_t(grid.z) * grid.y, 2, h, d, w.size(2), w.size(3)}, options);
  const Tensor de = empty({int64_t(grid.z) * 2, h, d, r}, options);
  const int width = p.across * run;
  const int64_t numbers = ahead + (3 * width + share.groups * run - 1) * lanes;
  dispatch_among<BFloat16, float>(sides[0].x.dtype(), [&]<class S>() {
    launch_with_shared(
        "spe", w.device().index, sum_noise<S>, grid, threads,
        4 * std::max<int64_t>(numbers, 3 * threads), dw.data<float>(), de.data<float>(),
        sides_of<const S>(sides, 1, [](const NoiseSide& o, int) -> const Tensor& { return o.x; }),
        sides_of<const S>(sides, 1, [](const NoiseSide& o, int) -> const Tensor& { return o.y; }),
        p, share);
  });
  return {dw.size(0) == 1 ? dw.select(0, 0) : sum(dw, {0}, false), sum(de, {0}, false)};
}

}  // namespace stretto::cuda
