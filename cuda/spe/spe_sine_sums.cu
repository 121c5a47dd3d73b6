// Sums for the gradients of a code of sinusoids: over positions and the batch.
//
//     for each block of 32 positions with the middle c:
//         for each four batch entries:
//             for each dimension:
//                 dC at c + m and c − m = Σ_b x g, in registers; their sums and differences
//                 for each frequency: Σ_m of dC and m dC times cos and sin of 2πfm, rotated from c
//                     to position 0, are added to sums in shared memory
//
// One thread owns each sum in shared memory. For f32 and bf16, any D and R. Tested against the CPU.
#include "cuda/reduce.h"
#include "cuda/spe/spe_sine.cuh"

namespace stretto::cuda {
namespace {

constexpr int threads = sine_threads;

constexpr int own = places / 4;  // positions of a thread before the middle, and after it

/// Shared memory: the middle's position, x [dims, batch, places], the waves and, for each of them,
/// cos and sin at the middle; sums [dims, 4K + 1, threads]; `sums` points to the thread's.
struct SumsMemory {
  float *middle_at, *tile, *waves;
  Pack<float, 2>* middles;
  float* sums;
  __device__ SumsMemory(float* memory, const Sines& p)
      : middle_at(memory),
        tile(memory + 4),
        waves(tile + sums_dims * x_pitch),
        middles(reinterpret_cast<Pack<float, 2>*>(waves + p.dims * p.k * 2 * wave_size)),
        sums(reinterpret_cast<float*>(middles + p.dims * p.k) + threadIdx.x) {}
};

/// The waves of frequencies `first` …, by fours: cos, sin, m cos and m sin at distances m.
__device__ __forceinline__ void load_waves(float* to, const Sines& p, int64_t first, int count) {
  const auto* const from =
      reinterpret_cast<const Pack<float, 4>*>(p.waves + first * p.k * wave_size);
#pragma unroll 1
  for (int i = threadIdx.x; i < count * p.k * wave_size / 2; i += threads) {
    Pack<float, 4> wave = from[i / 4 * 2 + i % 2];
    if (i & 2) {
#pragma unroll
      for (int j = 0; j < 4; ++j) wave.v[j] *= float(i / 4 % 4 * 4 + j) + 0.5f;
    }
    reinterpret_cast<Pack<float, 4>*>(to)[i] = wave;
  }
}

/// The gradients of a column at a thread's positions after and before the middle, by distance from
/// it, for `batch` batch entries; zeros out of range.
struct Gradients {
  float after[batch][own], before[batch][own];

  template <class S>
  __device__ __forceinline__ void load(const HeadRows<const S>& g, const Sines& p, int b0, int head,
                                       int row, int c, int half) {
    const bool whole = row >= 0 && row + places <= p.n && b0 + batch <= p.b;
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const S* const rows = g.at(b0 + b, head, row + places / 2) + c;
      const int step = int(g.row);
      int late = own * half * step, early = late - (2 * own * half + 1) * step;
      if (whole && c < p.r) {
#pragma unroll
        for (int j = 0; j < own; ++j, late += step, early -= step) {
          after[b][j] = cast<float>(rows[late]);
          before[b][j] = cast<float>(rows[early]);
        }
      } else {
        const int l = row + places / 2 + own * half, e = row + places / 2 - 1 - own * half;
#pragma unroll
        for (int j = 0; j < own; ++j, late += step, early -= step) {
          after[b][j] = before[b][j] = 0;
          if (b0 + b >= p.b || c >= p.r) continue;
          if (unsigned(l + j) < unsigned(p.n)) after[b][j] = cast<float>(rows[late]);
          if (unsigned(e - j) < unsigned(p.n)) before[b][j] = cast<float>(rows[early]);
        }
      }
    }
  }

  /// dC at c + m plus and minus that at c − m, for the dimension whose x is given; returns the sum
  /// of all of them.
  __device__ __forceinline__ float times(const float* x, int half, float (&even)[own],
                                         float (&odd)[own]) const {
#pragma unroll
    for (int j = 0; j < own; ++j) even[j] = odd[j] = 0;  // first the values after and before
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const auto* const numbers = reinterpret_cast<const Pack<float, 4>*>(x + b * places);
#pragma unroll
      for (int part = 0; part < own / 4; ++part) {
        const Pack<float, 4> late = numbers[(places / 2 + own * half) / 4 + part];
        const Pack<float, 4> early = numbers[(places / 2 - own * half) / 4 - 1 - part];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          even[4 * part + j] += late.v[j] * after[b][4 * part + j];
          odd[4 * part + j] += early.v[3 - j] * before[b][4 * part + j];
        }
      }
    }
    float total = 0;
#pragma unroll
    for (int j = 0; j < own; ++j) {
      const float sum = even[j] + odd[j];
      odd[j] = even[j] - odd[j];
      even[j] = sum;
      total += sum;
    }
    return total;
  }
};

/// Adds a dimension's contribution to the sums at `to`, four per frequency.
__device__ __forceinline__ void add_waves(float* to, const float* waves,
                                          const Pack<float, 2>* middles, const float* middle_at,
                                          int count, const float (&even)[own],
                                          const float (&odd)[own]) {
  const auto* wave = reinterpret_cast<const Pack<float, 4>*>(waves);
#pragma unroll 1
  for (int k = 0; k < count; ++k, wave += 16, to += 4 * threads, ++middles) {
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma unroll
    for (int part = 0; part < own / 4; ++part) {
      const Pack<float, 4> cosines = wave[4 * part], sines = wave[4 * part + 1];
      const Pack<float, 4> m_cosines = wave[4 * part + 2], m_sines = wave[4 * part + 3];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float e = even[4 * part + j], o = odd[4 * part + j];
        s0 += cosines.v[j] * e;
        s1 += sines.v[j] * o;
        s2 += m_cosines.v[j] * o;
        s3 += m_sines.v[j] * e;
      }
    }
    const auto [cosine, sine] = middles->v;
    const float at_middle = *middle_at;
    const float da = cosine * s0 - sine * s1, db = sine * s0 + cosine * s1;
    to[0] += da;
    to[threads] += db;
    to[2 * threads] += at_middle * da + (cosine * s2 - sine * s3);
    to[3 * threads] += at_middle * db + (sine * s2 + cosine * s3);
  }
}

/// out [splits, H, D, 4K + 1, R]: a thread has one column at 16 positions, 8 · half or more away
/// from the middle, and accumulates separate sums until the end.
template <class S>
__global__ void __launch_bounds__(threads, 4)
    sine_sums(float* out, const HeadRows<const S> x, const HeadRows<const S> g, const Sines p,
              int blocks, int per) {
  extern __shared__ float bytes[];
  const SumsMemory memory(bytes, p);
  const int n_sums = 4 * p.k + 1;
  const int head = int(blockIdx.y) / p.tiles, column = int(threadIdx.x) % columns;
  const int c = int(blockIdx.y) % p.tiles * columns + column, half = int(threadIdx.x) / columns;
  const int d0 = int(blockIdx.x) * p.dims, count = min(p.dims, p.d - d0);
  const int64_t first = int64_t(head) * p.d + d0;
  load_waves(memory.waves, p, first, count);
#pragma unroll 1
  for (int i = 0; i < count * n_sums; ++i) memory.sums[i * threads] = 0;
  const int end = min(blocks, (int(blockIdx.z) + 1) * per);
#pragma unroll 1
  for (int block = int(blockIdx.z) * per; block < end; ++block) {
    const int64_t position = p.first + int64_t(block) * places;
    const int row = int(position - p.at);
    const double middle = double(position) + 0.5 * (places - 1);
#pragma unroll 1
    for (int b0 = 0; b0 < p.b; b0 += batch) {
      if (b0 == 0) {
        if (threadIdx.x == 0) *memory.middle_at = float(middle);
#pragma unroll 1
        for (int i = threadIdx.x; i < count * p.k; i += threads)
          phase(double(p.f[first * p.k + i]), middle, memory.middles[i].v[0],
                memory.middles[i].v[1]);
      }
      if (p.dims > quad)
        load_tile<2>(memory.tile, x, p, b0, head, row, d0);
      else
        load_tile<1>(memory.tile, x, p, b0, head, row, d0);
      Gradients gradients;
      gradients.load(g, p, b0, head, row, c, half);
      __syncthreads();
#pragma unroll 1
      for (int d = 0; d < count; ++d) {
        float even[own], odd[own];
        const float total = gradients.times(memory.tile + d * x_pitch, half, even, odd);
        float* const to = memory.sums + d * n_sums * threads;
        add_waves(to, memory.waves + 4 * (d * p.k * 16 + half * own), memory.middles + d * p.k,
                  memory.middle_at, p.k, even, odd);
        to[4 * p.k * threads] += total;
      }
      __syncthreads();  // before the next rows, and before the end
    }
  }
  float* const all = memory.sums - threadIdx.x;
#pragma unroll 1
  for (int i = half; i < count * n_sums; i += 2)
    if (c < p.r)
      out[((int64_t(blockIdx.z) * p.heads * p.d + first) * n_sums + i) * p.r + c] =
          all[i * threads + column] + all[i * threads + columns + column];
}

}  // namespace

Tensor sine_code_sums(const SineCode& code, const Tensor& x, const Tensor& g, int64_t at) {
  const int64_t n_sums = 4 * code.f.size(2) + 1;
  const Shape shape{code.f.size(0), code.f.size(1), n_sums, code.w.size(3)};
  const TensorOptions options{.dtype = f32, .device = x.device()};
  if (x.numel() == 0) {
    Tensor none = empty(shape, options);
    return none.zero_();
  }
  SineLaunch l = launch_of(code, x, at);
  int dims = 8;
  while (dims > 1 && 4 * sine_sums_size(dims, l.p.k) > (55 << 10)) dims /= 2;
  l.p.dims = dims;
  const int64_t chunks = ceil_div(l.p.d, dims), rows = l.p.heads * l.p.tiles;
  const int64_t per =
      ceil_div(l.blocks, std::clamp<int64_t>(8 * planned_sms / (chunks * rows), 1, l.blocks));
  const int64_t splits = ceil_div(l.blocks, per);
  Shape parts = shape;
  parts.insert(0, splits);
  const Tensor out = empty(parts, options);
  dispatch_among<BFloat16, float>(x.dtype(), [&]<class S>() {
    HeadRows<const S> from = head_rows<const S>(x, quad);
    from.packs = from.packs && dims % quad == 0;
    launch_with_shared("spe", x.device().index, sine_sums<S>,
                       dim3(unsigned(chunks), unsigned(rows), unsigned(splits)), threads,
                       4 * sine_sums_size(dims, l.p.k), out.data<float>(), from,
                       head_rows<const S>(g, 1), l.p, l.blocks, int(per));
  });
  return splits == 1 ? out.select(0, 0) : sum(out, {0}, false);
}

}  // namespace stretto::cuda
