// What kernels of sineSPE have in common: spe_sine.cu, spe_sine_sums.cu.
#pragma once

#include "cuda/fft/unit_root.cuh"
#include "cuda/runtime/head_rows.cuh"
#include "cuda/spe/spe_sine.h"

namespace stretto::cuda {

constexpr int sine_threads = 128, places = 32, columns = 64, batch = 4;
constexpr int pairs = 4;                     // of a thread
constexpr int tile_dims = 16, quad = 4;      // of x in shared memory, and of one access
constexpr int sums_dims = 8;                 // the same, in sine_code_sums
constexpr int x_pitch = batch * places + 4;  // of a dimension there
constexpr int dx_step = 40, dx_pitch = batch * dx_step + 4;
constexpr int wave_size = 2 * places / 2;  // cosines and sines of one frequency

struct Sines {
  const float *f, *w, *e, *waves;
  int heads, d, k, r, b, n;
  int64_t at, first;  // of the positions, and where the first block begins
  int dims;           // whose weights are in shared memory at a time
  int tiles;          // of columns
};

/// cos and sin of 2πfn
__device__ inline void phase(double f, double n, float& cosine, float& sine) {
  double c, s;
  wave_of(fma(f, n, -rint(f * n)), c, s);
  cosine = float(c);
  sine = float(s);
}

/// What a thread moves of a tile of so many quads of dimensions and `places` rows of a matrix, or
/// of 4 / quads of those: so that neither rows in memory nor dimensions in shared memory meet in a
/// bank.
template <int quads>
struct TilePlace {
  int q, l, b;
  __device__ TilePlace() {
    constexpr unsigned side = places / quads;
    const unsigned t = threadIdx.x;
    q = int(t / side % quads);
    l = int(t / places % quads * side + t % side);
    b = int(t / (places * quads));
  }
};
/// Numbers of dimension d in a tile lie so.
__device__ inline int swapped(int d, int l) { return l ^ (d & 8); }

/// tile[d, b, l] = x[b0 + b, head, row + l, d0 + d], zeros around
template <int quads, class S>
__device__ inline void load_tile(float* tile, const HeadRows<S>& x, const Sines& p, int b0,
                                 int head, int row, int d0) {
  const TilePlace<quads> at;
  const int d = d0 + quad * at.q, l = row + at.l;
  const bool there = unsigned(l) < unsigned(p.n) && d < p.d;
  const S* from = x.at(b0 + at.b, head, l) + d;
  tile += quad * at.q * x_pitch + swapped(quad * at.q, at.l);
#pragma unroll
  for (int b = at.b; b < batch; b += 4 / quads, from += 4 / quads * x.batch) {
    float v[quad] = {};
    if (there && b0 + b < p.b) {
      if (x.packs) {
        const auto pack = *reinterpret_cast<const Pack<S, quad>*>(from);
#pragma unroll
        for (int j = 0; j < quad; ++j) v[j] = cast<float>(pack.v[j]);
      } else {
#pragma unroll
        for (int j = 0; j < quad; ++j) v[j] = d + j < p.d ? cast<float>(from[j]) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < quad; ++j) tile[j * x_pitch + b * places] = v[j];
  }
}

/// With the table of waves that p points to.
struct SineLaunch {
  Sines p;
  Tensor waves;
  int blocks;
};

/// For an operand like x at positions from `at` on; how many dimensions at a time is left open.
SineLaunch launch_of(const SineCode& code, const Tensor& x, int64_t at);

/// Numbers in shared memory of the kernel behind sine_code_sums.
inline int64_t sine_sums_size(int64_t dims, int64_t k) {
  return 4 + sums_dims * x_pitch + dims * k * (2 * wave_size + 2) +
         dims * (4 * k + 1) * sine_threads;
}

}  // namespace stretto::cuda
