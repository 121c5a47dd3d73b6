// Shared by the kernels of sineSPE: spe_sine.cu, spe_sine_sums.cu.
#pragma once

#include "cuda/fft/unit_root.cuh"
#include "cuda/runtime/head_rows.cuh"
#include "cuda/spe/spe_sine.h"

namespace stretto::cuda {

constexpr int sine_threads = 128, places = 32, columns = 64, batch = 4;
constexpr int pairs = 4;                     // per thread
constexpr int tile_dims = 16, quad = 4;      // of x in shared memory; of one access
constexpr int sums_dims = 8;                 // as tile_dims, in sine_code_sums
constexpr int x_pitch = batch * places + 4;  // of a dimension in shared memory
constexpr int dx_step = 40, dx_pitch = batch * dx_step + 4;
constexpr int wave_size = 2 * places / 2;  // cosines and sines of one frequency

struct Sines {
  const float *f, *w, *e, *waves;
  int heads, d, k, r, b, n;
  int64_t at, first;  // the first position of the operand and of the first block
  int dims;           // in shared memory at a time
  int tiles;          // of columns
};

/// cos and sin of 2πfn
__device__ inline void phase(double f, double n, float& cosine, float& sine) {
  double c, s;
  wave_of(fma(f, n, -rint(f * n)), c, s);
  cosine = float(c);
  sine = float(s);
}

/// A thread's part of a tile of `quads` quads of dimensions and `places` rows of a matrix,
/// or of 4 / quads matrices. Avoids bank conflicts between rows in memory and between
/// dimensions in shared memory.
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
/// The place of element l of dimension d in a tile.
__device__ inline int swapped(int d, int l) { return l ^ (d & 8); }

/// tile[d, b, l] = x[b0 + b, head, row + l, d0 + d], zeros out of range
template <int quads, class S>
__device__ inline void load_tile(float* tile, const HeadRows<S>& x, const Sines& p, int b0,
                                 int head, int row, int d0) {
  const TilePlace<quads> at;
  const int d = d0 + quad * at.q, l = row + at.l;
  const bool in_range = unsigned(l) < unsigned(p.n) && d < p.d;
  const S* from = x.at(b0 + at.b, head, l) + d;
  tile += quad * at.q * x_pitch + swapped(quad * at.q, at.l);
#pragma unroll
  for (int b = at.b; b < batch; b += 4 / quads, from += 4 / quads * x.batch) {
    float v[quad] = {};
    if (in_range && b0 + b < p.b) {
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

/// The arguments of a launch, and the table of waves that p points to.
struct SineLaunch {
  Sines p;
  Tensor waves;
  int blocks;
};

/// For an operand like x at positions from `at` on; the caller sets p.dims.
SineLaunch launch_of(const SineCode& code, const Tensor& x, int64_t at);

/// The size of the shared memory of the kernel of sine_code_sums, in f32 elements.
inline int64_t sine_sums_size(int64_t dims, int64_t k) {
  return 4 + sums_dims * x_pitch + dims * k * (2 * wave_size + 2) +
         dims * (4 * k + 1) * sine_threads;
}

}  // namespace stretto::cuda
