// What the gradients of a code of sinusoids are made of: sums over positions and the batch.
//
// dC = Σ_b x g is made in registers, for positions c + m and c − m together, and multiplied by the
// sinusoids about the middle c of a block of 32; what that gives is turned to position 0 and added
// to sums in shared memory, each of which has one thread. For f32 and bf16, any D and R. Tested
// against the CPU.
#include "cuda/reduce.h"
#include "cuda/spe/spe_sine.cuh"

namespace stretto::cuda {
namespace {

constexpr int threads = sine_threads;

/// out [splits, H, D, 4K + 1, R]: a thread has one column at 16 positions, at a distance of 8 ·
/// half and more from the middle, and sums of its own until the end.
template <class S>
__global__ void __launch_bounds__(threads, 4)
    sine_sums(float* out, const Rows<const S> x, const Rows<const S> g, const Sines p, int blocks,
              int per) {
  constexpr int own = places / 4;
  extern __shared__ float memory[];
  const int n_sums = 4 * p.k + 1;
  float *const middle_at = memory, *const tile = memory + 4;
  float* const waves = tile + sums_dims * x_pitch;
  auto* const middles = reinterpret_cast<Pack<float, 2>*>(waves + p.dims * p.k * 2 * wave_size);
  float* const sums = reinterpret_cast<float*>(middles + p.dims * p.k) + threadIdx.x;
  const int head = int(blockIdx.y) / p.tiles, column = int(threadIdx.x) % columns;
  const int c = int(blockIdx.y) % p.tiles * columns + column, half = int(threadIdx.x) / columns;
  const int d0 = int(blockIdx.x) * p.dims, count = min(p.dims, p.d - d0);
  const int64_t first = int64_t(head) * p.d + d0;
  const auto* const all_waves =
      reinterpret_cast<const Pack<float, 4>*>(p.waves + first * p.k * wave_size);
#pragma unroll 1
  for (int i = threadIdx.x; i < count * p.k * wave_size / 2; i += threads) {
    Pack<float, 4> wave = all_waves[i / 4 * 2 + i % 2];
    if (i & 2) {
#pragma unroll
      for (int j = 0; j < 4; ++j) wave.v[j] *= float(i / 4 % 4 * 4 + j) + 0.5f;
    }
    reinterpret_cast<Pack<float, 4>*>(waves)[i] = wave;
  }
#pragma unroll 1
  for (int i = 0; i < count * n_sums; ++i) sums[i * threads] = 0;
  const int end = min(blocks, (int(blockIdx.z) + 1) * per);
#pragma unroll 1
  for (int block = int(blockIdx.z) * per; block < end; ++block) {
    const int64_t position = p.first + int64_t(block) * places;
    const int row = int(position - p.at);
    const double middle = double(position) + 0.5 * (places - 1);
#pragma unroll 1
    for (int b0 = 0; b0 < p.b; b0 += batch) {
      if (b0 == 0) {
        if (threadIdx.x == 0) *middle_at = float(middle);
#pragma unroll 1
        for (int i = threadIdx.x; i < count * p.k; i += threads)
          phase(double(p.f[first * p.k + i]), middle, middles[i].v[0], middles[i].v[1]);
      }
      if (p.dims > quad)
        load_tile<2>(tile, x, p, b0, head, row, d0);
      else
        load_tile<1>(tile, x, p, b0, head, row, d0);
      float after[batch][own], before[batch][own];
      const bool whole = row >= 0 && row + places <= p.n && b0 + batch <= p.b;
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const S* const rows =
            g.data + (b0 + b) * g.batch + head * g.head + c + int64_t(row + places / 2) * g.row;
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
      __syncthreads();
#pragma unroll 1
      for (int d = 0; d < count; ++d) {
        float even[own] = {}, odd[own] = {};  // of dC, at first what is after and before
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const auto* const numbers =
              reinterpret_cast<const Pack<float, 4>*>(tile + d * x_pitch + b * places);
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
        float* to = sums + d * n_sums * threads;
        const Pack<float, 2>* middle_of = middles + d * p.k;
        const auto* wave =
            reinterpret_cast<const Pack<float, 4>*>(waves) + d * p.k * 16 + half * own;
#pragma unroll 1
        for (int k = 0; k < p.k; ++k, wave += 16, to += 4 * threads, ++middle_of) {
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
          const auto [cosine, sine] = middle_of->v;
          const float at_middle = *middle_at;
          const float da = cosine * s0 - sine * s1, db = sine * s0 + cosine * s1;
          to[0] += da;
          to[threads] += db;
          to[2 * threads] += at_middle * da + (cosine * s2 - sine * s3);
          to[3 * threads] += at_middle * db + (sine * s2 + cosine * s3);
        }
        to[0] += total;
      }
      __syncthreads();  // before the next rows, and for what follows
    }
  }
  float* const all = sums - threadIdx.x;
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
  with_type(x, [&]<class S>() {
    Rows<const S> from = rows_of<const S>(x, quad);
    from.packs = from.packs && dims % quad == 0;
    launch_with_shared("spe", x.device().index, sine_sums<S>,
                       dim3(unsigned(chunks), unsigned(rows), unsigned(splits)), threads,
                       4 * sine_sums_size(dims, l.p.k), out.data<float>(), from,
                       rows_of<const S>(g, 1), l.p, l.blocks, int(per));
  });
  return splits == 1 ? out.select(0, 0) : sum(out, {0}, false);
}

}  // namespace stretto::cuda
