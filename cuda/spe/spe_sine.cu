// Codes of sinusoids, computed in registers and applied there (formulas: ops/spe/spe_sine.cpp).
//
// A block has 32 positions that begin at a multiple of 32, four batch entries and 64 of the R
// columns. It processes some dimensions at a time: on the way to shared memory, their weights are
// rotated by the phases at the middle c of the positions, so that positions c + m and c − m share K
// products. A thread has two columns at eight positions, and applies each value of a code to the
// batch entries at once. For f32 and bf16, any D and R; the phases at the middle of all dimensions
// must fit in shared memory. Tested against the CPU.
#include "cuda/reduce.h"
#include "cuda/runtime/ptx.cuh"
#include "cuda/spe/spe_sine.cuh"

namespace stretto::cuda {
namespace {

constexpr int threads = sine_threads;

/// waves [frequencies, 4, {cos, sin}, 4] at distances ½, 1½, …
__global__ void make_waves(float* waves, const float* f, int64_t count) {
#pragma unroll 1
  for (int64_t i = thread_index(); i < count * (places / 2); i += thread_count()) {
    const int64_t which = i / (places / 2);
    const int m = int(i % (places / 2));
    float* const to = waves + which * wave_size + m / pairs * 2 * pairs + m % pairs;
    phase(double(f[which]), m + 0.5, to[0], to[pairs]);
  }
}

/// Four elements of a row from `row` on, of which `left` exist (Packs: all or none); else zeros.
template <bool Packs>
__device__ inline Pack<float, 4> four(const float* row, int left) {
  Pack<float, 4> v = {};
  if constexpr (Packs) {
    if (left > 0) v = *reinterpret_cast<const Pack<float, 4>*>(row);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < left) v.v[j] = row[j];
  }
  return v;
}

/// The first of a thread's two columns in its block: the halves of a warp take alternate pairs, as
/// threads that load four columns store them to two places next to their neighbors'.
__device__ inline int column_of() {
  const int lane = int(threadIdx.x) % 32;
  return lane % 16 * 4 + lane / 16 * 2;
}

/// A block's data of a code, in shared memory after x: the gate's rows [most_dims, columns];
/// for each dimension and sinusoid the weights of cos and sin [columns / 2, 2, 2] and waves, with
/// columns in the order of the lanes that have them; and the phases at the middle [D, K].
struct Stage {
  static constexpr int most_dims = 8, record = 2 * columns + wave_size;
  float *shared, *records;
  Pack<float, 2>* middles;
  __device__ Stage(float* memory, const Sines& p)
      : shared(memory),
        records(memory + most_dims * columns),
        middles(reinterpret_cast<Pack<float, 2>*>(records + p.dims * p.k * record)) {}
  STRETTO_HD static int64_t size(int dims, int k, int d) {
    return most_dims * columns + int64_t(dims) * k * record + 2 * int64_t(d) * k;
  }

  __device__ void find_middles(const Sines& p, int head, double middle) const {
    const float* const f = p.f + int64_t(head) * p.d * p.k;
#pragma unroll 1
    for (int i = threadIdx.x; i < p.d * p.k; i += threads)
      phase(double(f[i]), middle, middles[i].v[0], middles[i].v[1]);
  }

  /// Loads dimensions d0 … d0 + count − 1, columns from c0 on.
  __device__ void load(const Sines& p, int head, int d0, int count, int c0) const {
    if (p.r % 4 == 0)
      load<true>(p, head * p.d + d0, d0, count, c0);
    else
      load<false>(p, head * p.d + d0, d0, count, c0);
  }
  template <bool Packs>
  __device__ void load(const Sines& p, int first, int d0, int count, int c0) const {
    constexpr int across = columns / 4, down = threads / across;
    const unsigned t = threadIdx.x;
    const int c = int(t % across) * 4, left = p.r - c0 - c;
    const int start = int(t / across), n = count * p.k;
    const int64_t step = 2 * down * int64_t(p.r);
    const float* from = p.w + (int64_t(first) * p.k + start) * 2 * p.r + c0 + c;
    float* to = records + start * record + c;
    const Pack<float, 2>*middle = middles + d0 * p.k + start, *const end = middle - start + n;
#pragma unroll 1
    for (; middle < end; middle += down, from += step, to += down * record) {
      const Pack<float, 4> a = four<Packs>(from, left), b = four<Packs>(from + p.r, left);
      const auto [cosine, sine] = middle->v;
      Pack<float, 4> rotated[2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        rotated[j / 2].v[j % 2] = cosine * a.v[j] + sine * b.v[j];
        rotated[j / 2].v[j % 2 + 2] = cosine * b.v[j] - sine * a.v[j];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) reinterpret_cast<Pack<float, 4>*>(to)[i * across] = rotated[i];
    }
    constexpr int parts = wave_size / 4, each = threads / parts;
    const int which = int(t / parts), part = int(t % parts);
    const auto* wave =
        reinterpret_cast<const Pack<float, 4>*>(p.waves + int64_t(first) * p.k * wave_size) + t;
    to = records + which * record + 2 * columns + 4 * part;
#pragma unroll 1
    for (int more = n - which; more > 0; more -= each, wave += threads, to += each * record)
      *reinterpret_cast<Pack<float, 4>*>(to) = *wave;
    if (start < count) {
      Pack<float, 4> e = {};
      if (p.e) e = four<Packs>(p.e + int64_t(first + start) * p.r + c0 + c, left);
      auto* const gate = reinterpret_cast<Pack<float, 2>*>(shared + start * columns + c / 2);
      gate[0] = {e.v[0], e.v[1]};
      gate[across] = {e.v[2], e.v[3]};
    }
  }

  /// The thread's data of the dimension whose code is computed next.
  struct Next {
    const Pack<float, 2>* e;
    const float *w, *wave;
  };
  __device__ Next first() const {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    return {reinterpret_cast<const Pack<float, 2>*>(shared) + lane, records + 4 * lane,
            records + 2 * columns + 2 * pairs * warp};
  }

  /// The code of that dimension: [places of the thread, 2], the later ones first. K: the number of
  /// sinusoids, or 0 for any number.
  template <int K>
  __device__ static void make(const Sines& p, Next& next, float (&code)[2 * pairs][2]) {
    constexpr int unrolled = K > 0 ? K : 4;
    const int count = K > 0 ? K : p.k;
    const Pack<float, 2> e = *next.e;
    next.e += columns / 2;
    float odd[pairs][2];
#pragma unroll
    for (int j = 0; j < pairs; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) code[j][i] = e.v[i], odd[j][i] = 0;
#pragma unroll unrolled
    for (int k = 0; k < count; ++k, next.w += record, next.wave += record) {
      const auto w = *reinterpret_cast<const Pack<float, 4>*>(next.w);
      const auto c = *reinterpret_cast<const Pack<float, 4>*>(next.wave);
      const auto s = *reinterpret_cast<const Pack<float, 4>*>(next.wave + pairs);
#pragma unroll
      for (int j = 0; j < pairs; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          code[j][i] += c.v[j] * w.v[i];
          odd[j][i] += s.v[j] * w.v[2 + i];
        }
    }
#pragma unroll
    for (int j = 0; j < pairs; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        code[pairs + j][i] = code[j][i] - odd[j][i];
        code[j][i] += odd[j][i];
      }
  }
};

/// The index, among the 32 positions, of place j of the thread's warp.
__device__ inline int place_of(int j) {
  const int warp = int(threadIdx.x) / 32;
  return j < pairs ? places / 2 + pairs * warp + j : places / 2 - 1 - pairs * warp - (j - pairs);
}

/// The tile of a block.
struct Where {
  int head, c0, b0;
  int row;  // of the operand, at the first position
  double middle;
  __device__ explicit Where(const Sines& p) {
    head = int(blockIdx.y) / p.tiles;
    c0 = int(blockIdx.y) % p.tiles * columns;
    b0 = int(blockIdx.z) * batch;
    const int64_t position = p.first + int64_t(blockIdx.x) * places;
    row = int(position - p.at);
    middle = double(position) + 0.5 * (places - 1);
  }
};

/// y = Σ_d x_d (C_d + e_d)
template <int K, class S>
__global__ void __launch_bounds__(threads, 4)
    apply_sines(const HeadRows<S> y, const HeadRows<const S> x, const Sines p) {
  extern __shared__ float memory[];
  const Where where(p);
  const Stage stage(memory + tile_dims * x_pitch, p);
  stage.find_middles(p, where.head, where.middle);
  __syncthreads();
  const int warp = int(threadIdx.x) / 32;
  float sums[batch][2 * pairs][2] = {};
#pragma unroll 1
  for (int d0 = 0; d0 < p.d; d0 += p.dims) {
    const int count = min(p.dims, p.d - d0);
    if (d0 % tile_dims == 0)
      load_tile<tile_dims / quad>(memory, x, p, where.b0, where.head, where.row, d0);
    stage.load(p, where.head, d0, count, where.c0);
    __syncthreads();
    // These dimensions are within one group of 8: all of them are swapped or none is.
    const float* const numbers = memory + d0 % tile_dims * x_pitch;
    const float* late = numbers + swapped(d0, places / 2 + pairs * warp);
    const float* early = numbers + swapped(d0, places / 2 - pairs - pairs * warp);
    Stage::Next next = stage.first();
#pragma unroll 1
    for (const float* const end = late + count * x_pitch; late < end;
         late += x_pitch, early += x_pitch) {
      float code[2 * pairs][2];
      Stage::make<K>(p, next, code);
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const auto after = *reinterpret_cast<const Pack<float, 4>*>(late + b * places);
        const auto before = *reinterpret_cast<const Pack<float, 4>*>(early + b * places);
#pragma unroll
        for (int j = 0; j < pairs; ++j)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            sums[b][j][i] += after.v[j] * code[j][i];
            sums[b][pairs + j][i] += before.v[pairs - 1 - j] * code[pairs + j][i];
          }
      }
    }
    __syncthreads();  // before the next dimensions
  }
  const int c = where.c0 + column_of();
  if (c >= p.r) return;
  const auto leave = [&](const auto& put) {
#pragma unroll
    for (int j = 0; j < 2 * pairs; ++j) {
      const int l = where.row + place_of(j);
      if (unsigned(l) >= unsigned(p.n)) continue;
      S* to = y.at(where.b0, where.head, l) + c;
#pragma unroll
      for (int b = 0; b < batch; ++b, to += y.batch)
        if (where.b0 + b < p.b) put(to, sums[b][j][0], sums[b][j][1]);
    }
  };
  if (y.packs)
    leave([](S* to, float first, float second) {
      if constexpr (std::is_same_v<S, BFloat16>)
        *reinterpret_cast<uint32_t*>(to) = ptx::cvt_pack(first, second);
      else
        *reinterpret_cast<Pack<S, 2>*>(to) = {first, second};
    });
  else
    leave([&](S* to, float first, float second) {
      to[0] = cast<S>(first);
      if (c + 1 < p.r) to[1] = cast<S>(second);
    });
}

/// g of the thread's columns c and c + 1 at its places; zeros out of range.
template <class S>
__device__ __forceinline__ void load_gradients(float (&grads)[batch][2 * pairs][2],
                                               const HeadRows<const S>& g, const Sines& p,
                                               const Where& where, int c) {
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    const S* const rows = g.at(where.b0 + b, where.head) + c;
#pragma unroll
    for (int j = 0; j < 2 * pairs; ++j) {
      const int l = where.row + place_of(j);
      const S* const from = rows + int64_t(l) * g.row;
      grads[b][j][0] = grads[b][j][1] = 0;
      if (where.b0 + b >= p.b || unsigned(l) >= unsigned(p.n)) continue;
      if (g.packs) {
        Pack<S, 2> v = {};
        if (c < p.r) v = *reinterpret_cast<const Pack<S, 2>*>(from);
        grads[b][j][0] = cast<float>(v.v[0]), grads[b][j][1] = cast<float>(v.v[1]);
      } else {
        if (c < p.r) grads[b][j][0] = cast<float>(from[0]);
        if (c + 1 < p.r) grads[b][j][1] = cast<float>(from[1]);
      }
    }
  }
}

/// Stores dimensions `begin` … of dx from shared memory, `part` elements after the first part.
template <class Out>
__device__ __forceinline__ void store_dx(const HeadRows<Out>& dx, int64_t part, const float* memory,
                                         const Sines& p, const Where& where, int begin) {
#pragma unroll 1
  for (int b = 0; b < batch; ++b) {
    const TilePlace<tile_dims / quad> at;
    const int l = where.row + at.l, first = begin + quad * at.q;
    if (where.b0 + b >= p.b || unsigned(l) >= unsigned(p.n) || first >= p.d) continue;
    const float* const from =
        memory + quad * at.q * dx_pitch + b * dx_step + swapped(quad * at.q, at.l);
    Out* const to = dx.at(where.b0 + b, where.head, l) + part + first;
    Pack<Out, quad> v;
#pragma unroll
    for (int j = 0; j < quad; ++j) v.v[j] = first + j < p.d ? cast<Out>(from[j * dx_pitch]) : Out{};
    if (dx.packs) {
      *reinterpret_cast<Pack<Out, quad>*>(to) = v;
    } else {
#pragma unroll
      for (int j = 0; j < quad; ++j)
        if (first + j < p.d) to[j] = v.v[j];
    }
  }
}

/// dx = Σ_r g (C + e); with several tiles of columns each writes a part.
template <int K, class S, class Out>
__global__ void __launch_bounds__(threads, 4)
    sine_gradients(const __grid_constant__ HeadRows<Out> dx, int64_t part,
                   const __grid_constant__ HeadRows<const S> g, const Sines p) {
  extern __shared__ float memory[];
  const Where where(p);
  const Stage stage(memory + tile_dims * dx_pitch, p);
  stage.find_middles(p, where.head, where.middle);
  const int lane = int(threadIdx.x) % 32;
  float grads[batch][2 * pairs][2];
  load_gradients(grads, g, p, where, where.c0 + column_of());
  __syncthreads();
#pragma unroll 1
  for (int d0 = 0; d0 < p.d; d0 += p.dims) {
    const int count = min(p.dims, p.d - d0);
    stage.load(p, where.head, d0, count, where.c0);
    __syncthreads();
    Stage::Next next = stage.first();
#pragma unroll 1
    for (int d = 0; d < count; ++d) {
      float code[2 * pairs][2];
      Stage::make<K>(p, next, code);
      float v[32];
#pragma unroll
      for (int b = 0; b < batch; ++b)
#pragma unroll
        for (int j = 0; j < 2 * pairs; ++j)
          v[b * 2 * pairs + j] = grads[b][j][0] * code[j][0] + grads[b][j][1] * code[j][1];
      const float sum = sum_across(v);
      const int of = (d0 + d) % tile_dims;
      memory[of * dx_pitch + lane / (2 * pairs) * dx_step + swapped(of, place_of(lane % 8))] = sum;
    }
    __syncthreads();  // before the next dimensions, and for store_dx()
    const int done = d0 + count;
    if (done % tile_dims == 0 || done == p.d)
      store_dx(dx, int(blockIdx.y) % p.tiles * part, memory, p, where,
               (done - 1) / tile_dims * tile_dims);
  }
}

constexpr int64_t stage_bytes = 44 << 10;  // so that four blocks share a multiprocessor
int stage_dims(int64_t d, int64_t k) {
  int dims = 8;
  while (dims > 1 && 4 * Stage::size(dims, int(k), int(d)) > stage_bytes) dims /= 2;
  return dims;
}

/// Calls f<K>() for the numbers of sinusoids of published models, f<0>() for others.
template <class F>
void with_sines(int k, const F& f) {
  if (k == 1) return f.template operator()<1>();
  if (k == 5) return f.template operator()<5>();
  if (k == 8) return f.template operator()<8>();
  k == 10 ? f.template operator()<10>() : f.template operator()<0>();
}

}  // namespace

SineLaunch launch_of(const SineCode& code, const Tensor& x, int64_t at) {
  const int64_t k = code.f.size(2), r = code.w.size(3), n = x.size(2);
  SineLaunch all;
  all.waves = empty({code.f.numel(), wave_size}, options_of(code.f));
  launch("spe", x.device().index, make_waves, blocks_for(code.f.numel() * places / 2, 128), 128,
         all.waves.data<float>(), static_cast<const float*>(code.f.data<float>()), code.f.numel());
  const int64_t first = at / places * places;
  all.blocks = int(ceil_div(at + n - first, places));
  all.p = {code.f.data<float>(),
           code.w.data<float>(),
           data_or_null<float>(code.e),
           all.waves.data<float>(),
           int(code.f.size(0)),
           int(code.f.size(1)),
           int(k),
           int(r),
           int(x.size(0)),
           int(n),
           at,
           first,
           8,
           int(ceil_div(r, columns))};
  return all;
}

bool makes_sine_codes(int64_t d, int64_t sines) {
  constexpr int64_t most = 200 << 10;
  return 4 * (Stage::size(1, int(std::min<int64_t>(sines, 1 << 12)),
                          int(std::min<int64_t>(d, 1 << 12))) +
              tile_dims * dx_pitch) <=
             most &&
         4 * sine_sums_size(1, sines) <= most;
}

void apply_sine_code(const SineCode& code, const Tensor& x, int64_t at, const Tensor& y) {
  if (y.numel() == 0) return;
  SineLaunch l = launch_of(code, x, at);
  l.p.dims = stage_dims(l.p.d, l.p.k);
  const int64_t bytes = 4 * (tile_dims * x_pitch + Stage::size(l.p.dims, l.p.k, l.p.d));
  dispatch_among<BFloat16, float>(x.dtype(), [&]<class S>() {
    with_sines(l.p.k, [&]<int K>() {
      launch_with_shared("spe", x.device().index, apply_sines<K, S>,
                         dim3(unsigned(l.blocks), unsigned(l.p.heads * l.p.tiles),
                              unsigned(ceil_div(l.p.b, batch))),
                         threads, bytes, head_rows<S>(y, 2), head_rows<const S>(x, quad), l.p);
    });
  });
}

void sine_code_dx(const SineCode& code, const Tensor& g, int64_t at, const Tensor& dx) {
  if (dx.numel() == 0) return;
  SineLaunch l = launch_of(code, g, at);
  l.p.dims = stage_dims(l.p.d, l.p.k);
  const int64_t bytes = 4 * (tile_dims * dx_pitch + Stage::size(l.p.dims, l.p.k, l.p.d));
  const Device device = g.device();
  const dim3 grid(unsigned(l.blocks), unsigned(l.p.heads * l.p.tiles),
                  unsigned(ceil_div(l.p.b, batch)));
  dispatch_among<BFloat16, float>(g.dtype(), [&]<class S>() {
    const auto run = [&](const auto& rows, int64_t part) {
      using Out = std::remove_pointer_t<decltype(rows.data)>;
      with_sines(l.p.k, [&]<int K>() {
        launch_with_shared("spe", device.index, sine_gradients<K, S, Out>, grid, threads, bytes,
                           rows, part, head_rows<const S>(g, 2), l.p);
      });
    };
    if (l.p.tiles == 1) return run(head_rows<S>(dx, quad), 0);
    const Tensor parts = empty({l.p.tiles, dx.size(0), dx.size(1), dx.size(2), dx.size(3)},
                               {.dtype = f32, .device = device});
    run(head_rows<float>(parts.select(0, 0), quad), dx.numel());
    dx.copy_(sum(parts, {0}, false));
  });
}

}  // namespace stretto::cuda
