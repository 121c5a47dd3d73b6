// Convolution of real rows by transforms (row_transform.cuh), in one pass over device memory: a row
// is loaded, transformed, multiplied by a filter's spectrum, transformed back and stored. Gradients
// are correlations with the other operand; that of a broadcast operand is a sum of spectra,
// transformed back once. A block that has several rows for one filter transforms the filter once.
// For transforms of up to 2^15 real elements (2^12 in f64). Tested against the CPU.
#include "cuda/fft/fft_conv.h"
#include "cuda/fft/row_transform.cuh"
#include "cuda/reduce.h"
#include "cuda/runtime/common.cuh"

namespace stretto::cuda {
namespace {

constexpr int least_log = 8, most_log = 14;
template <class T>
constexpr int row_log = most_log - (sizeof(T) == 8 ? 3 : 0);  // of the longest row
constexpr int small_block = 128;

/// A launch. A group is the set of rows that share a filter (or, if `summed`, a result); its rows
/// are its uses. A block computes items; item (group, chunk) is `per` of the `n_uses` uses of one
/// group. The layouts' operands are y, x and w.
template <class T>
struct RowProblem {
  T* y;
  const T *x, *w, *tables;
  T* memory;  // for the spectra of the threads; null: they are in shared memory
  Layout<3> groups, uses;
  int items, chunks, per, n_uses;
  int64_t part;  // from one chunk's results to the next one's
  int n, taps, shift, length;
  bool correlate;
};

/// The shared memory of a block, in complex elements per row: room for exchanges, and
/// the spectra that its threads store, each its own elements. If the spectra do not fit,
/// they are in a workspace.
template <class T, int log, bool summed>
struct RowRoom {
  static constexpr int points = 1 << log, slots = std::max(1, small_block*held / points);
  static constexpr int room = points + points / 16, spectra = (summed ? 2 : 1) * points;
  static constexpr int tables = Tables{log}.size();
  static constexpr int64_t number = 2 * int64_t(sizeof(T));
  static constexpr bool fits = ((room + spectra) * slots + tables) * number <= most_shared_memory;
  static constexpr int pitch = room + (fits ? spectra : 0);
  static constexpr int64_t bytes = (pitch * slots + (fits ? tables : 0)) * number;
  static constexpr int threads = slots * points / held;
  /// The number of blocks per multiprocessor.
  static constexpr int blocks =
      int(std::min<int64_t>(std::max(1, 512 / threads), most_shared_memory / bytes));
};

/// The elements of a spectrum that one thread stores. In memory the elements of the row's `count`
/// threads are interleaved: pairs of elements in f32, single elements in f64.
template <class T>
struct Spectrum {
  T* data;
  int count, t;

  /// Stores z or, if sign is −1, its conjugate.
  __device__ __forceinline__ void store(const Values<T>& z, T sign) const {
#pragma unroll
    for (int q = 0; q < held / 2; ++q)
      store_pair(data, q, count, t, z.re[2 * q], sign * z.im[2 * q], z.re[2 * q + 1],
                 sign * z.im[2 * q + 1]);
  }
  __device__ __forceinline__ void load(Values<T>& z) const {
#pragma unroll
    for (int q = 0; q < held / 2; ++q) {
      Pack<T, 2> pair[2];
      load_pair(data, q, count, t, pair[0], pair[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        z.re[2 * q + i] = pair[i].v[0];
        z.im[2 * q + i] = pair[i].v[1];
      }
    }
  }
  /// z ← z times this spectrum
  __device__ __forceinline__ void multiply(Values<T>& z) const {
#pragma unroll
    for (int q = 0; q < held / 2; ++q) {
      Pack<T, 2> w[2];
      load_pair(data, q, count, t, w[0], w[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = 2 * q + i;
        const T re = z.re[k], im = z.im[k];
        z.re[k] = fma(-im, w[i].v[1], re * w[i].v[0]);
        z.im[k] = fma(im, w[i].v[0], re * w[i].v[1]);
      }
    }
  }
  /// Adds z to this spectrum, or to 0 if z is the first one.
  __device__ __forceinline__ void add(const Values<T>& z, bool first) const {
#pragma unroll
    for (int q = 0; q < held / 2; ++q) {
      Pack<T, 2> sum[2] = {};
      if (!first) load_pair(data, q, count, t, sum[0], sum[1]);
      store_pair(data, q, count, t, sum[0].v[0] + z.re[2 * q], sum[0].v[1] + z.im[2 * q],
                 sum[1].v[0] + z.re[2 * q + 1], sum[1].v[1] + z.im[2 * q + 1]);
    }
  }
};

/// y [groups, uses, length], or summed over the uses of a chunk
template <class T, int log, bool summed>
__global__ void __launch_bounds__(RowRoom<T, log, summed>::threads,
                                  std::max(1, 512 / RowRoom<T, log, summed>::threads))
    convolve_rows_kernel(const __grid_constant__ RowProblem<T> p) {
  using Row = RowTransform<T, log>;
  using Room = RowRoom<T, log, summed>;
  extern __shared__ double shared[];
  const int t = int(threadIdx.x), slot = int(threadIdx.y);
  Pack<T, 2>* const row_room = reinterpret_cast<Pack<T, 2>*>(shared) + slot * Room::pitch;
  T* const spectra =
      Room::fits ? reinterpret_cast<T*>(row_room + Room::room)
                 : p.memory + (int64_t(blockIdx.x) * Room::slots + slot) * 2 * Room::spectra;
  T* const tables =
      reinterpret_cast<T*>(reinterpret_cast<Pack<T, 2>*>(shared) + Room::slots * Room::pitch);
  if (Room::fits) {  // an exchange has a barrier before they are read
    using Copied = Pack<T, pack_size<T>>;
    for (int i = slot * Row::threads + t; i < 2 * Room::tables / pack_size<T>; i += Room::threads)
      reinterpret_cast<Copied*>(tables)[i] = reinterpret_cast<const Copied*>(p.tables)[i];
  }
  const Row row{Room::fits ? tables : p.tables, row_room, t};
  const Spectrum<T> filter{spectra, Row::threads, t};
#pragma unroll 1
  for (int first = int(blockIdx.x) * Room::slots; first < p.items;
       first += int(gridDim.x) * Room::slots) {
    const bool active = first + slot < p.items;
    const int item = active ? first + slot : 0, group = item / p.chunks;
    const int begin = (item - group * p.chunks) * p.per;
    const auto place = [&](int operand, int use) {
      return offsets(p.groups, unsigned(group)).v[operand] +
             offsets(p.uses, unsigned(use)).v[operand];
    };
    Values<T> z;
    const auto load = [&](bool is_filter, int use) {
      const T* const from = is_filter ? p.w + place(2, use) : p.x + place(1, use);
      row.load(z, from, active && use < p.n_uses ? is_filter ? p.taps : p.n : 0);
      row.forward(z);
    };
    if constexpr (summed) {
      const Spectrum<T> sums{spectra + 2 * Row::points, Row::threads, t};
#pragma unroll 1
      for (int round = 0; round < 2 * p.per; ++round) {
        const bool is_filter = round % 2 == 0;
        load(is_filter, begin + round / 2);
        // The next transform writes to shared memory that other threads may still be reading.
        __syncthreads();
        if (is_filter) {
          filter.store(z, p.correlate ? T(-1) : T(1));
          continue;
        }
        filter.multiply(z);
        sums.add(z, round == 1);
      }
      sums.load(z);
      row.backward(z);
      if (active) row.store(z, p.y + begin / p.per * p.part + place(0, 0), p.shift, p.length);
    } else {
#pragma unroll 1
      for (int round = -1; round < p.per; ++round) {
        const int use = begin + std::max(round, 0);
        load(round < 0, use);
        if (round < 0) {
          __syncthreads();  // as above
          filter.store(z, p.correlate ? T(-1) : T(1));
          continue;
        }
        filter.multiply(z);
        row.backward(z);
        if (active && use < p.n_uses) row.store(z, p.y + place(0, use), p.shift, p.length);
      }
    }
  }
}

int log_of(int64_t coefficients) {
  int log = least_log;
  while (int64_t(2) << log < coefficients) ++log;
  return log;
}

template <class T, int log, bool summed>
void run(RowProblem<T> problem, Device device) {
  using Room = RowRoom<T, log, summed>;
  constexpr Tables tables{log};
  const int64_t blocks =
      std::min<int64_t>(ceil_div(problem.items, Room::slots), planned_sms * Room::blocks);
  const TensorOptions options{.dtype = dtype_of<T>(), .device = device};
  const Tensor factors = empty({tables.size(), 2}, options);
  launch("fft_conv", device.index, make_tables<T>, blocks_for(Room::points, 128), 128,
         factors.data<T>(), tables);
  problem.tables = factors.data<T>();
  Tensor memory;
  if (!Room::fits) {
    memory = empty({blocks * Room::slots, Room::spectra, 2}, options);
    problem.memory = memory.data<T>();
  }
  launch_with_shared("fft_conv", device.index, convolve_rows_kernel<T, log, summed>,
                     unsigned(blocks), dim3(Room::points / held, Room::slots), Room::bytes,
                     problem);
}

template <class T, bool summed, int log = least_log>
void run_of(int wanted_log, const RowProblem<T>& problem, Device device) {
  if (wanted_log == log) return run<T, log, summed>(problem, device);
  if constexpr (log < row_log<T>) run_of<T, summed, log + 1>(wanted_log, problem, device);
}

}  // namespace

bool convolves_rows(const RowConvolution& row, DType dtype) {
  return log_of(row.coefficients) <=
         (dtype == f64 ? row_log<double> : row_log<float>)&&row.length <= INT32_MAX;
}

Tensor convolve_rows(const Tensor& x, const Tensor& w, const RowConvolution& row,
                     const Shape& leading) {
  auto in_front = [](const Shape& s) { return Shape(s.begin(), s.dim() - 1); };
  const Shape batch = broadcast_shapes("fft_conv", in_front(x.shape()), in_front(w.shape()));
  Shape shape = leading;
  shape.push_back(row.length);
  const bool summed = leading.numel() < batch.numel();
  auto strides_of = [&](const Shape& s) {
    return broadcast_strides(in_front(s), in_front(contiguous_strides(s)), batch);
  };
  const Shape strides[3] = {strides_of(shape), strides_of(x.shape()), strides_of(w.shape())};
  Shape sizes[2], parts[2][3];  // of groups and of uses
  for (int64_t d = 0; d < batch.dim(); ++d) {
    const int to = batch[d] > 1 && strides[summed ? 0 : 2][d] == 0;
    sizes[to].push_back(batch[d]);
    for (int i = 0; i < 3; ++i) parts[to][i].push_back(strides[i][d]);
  }
  const int64_t groups = sizes[0].numel(), uses = sizes[1].numel();
  const int log = log_of(row.coefficients);
  const int64_t slots = std::max(1, small_block * held >> log);
  // Each block transforms the filters it uses, even if other blocks do too; chunks are added later.
  const int64_t per = summed ? ceil_div(uses, std::clamp<int64_t>(ceil_div(2048 * slots, groups), 1,
                                                                  ceil_div(uses, 8)))
                             : std::clamp<int64_t>(groups * uses / (8 * planned_sms * slots), 1,
                                                   std::min<int64_t>(uses, 16));
  const int64_t chunks = ceil_div(uses, per);
  check(groups * chunks < INT32_MAX, "fft_conv", "too many rows: x ", x, ", w ", w);
  const bool sum_chunks = summed && chunks > 1;
  Shape results = shape;
  if (sum_chunks) results.insert(0, chunks);
  Tensor y = empty(results, options_of(x));
  if (row.first > 0 || row.last < row.length) y.zero_();
  auto go = [&]<class T>() {
    const RowProblem<T> problem{y.data<T>() + row.first,
                                x.data<T>() + row.x_first,
                                w.data<T>() + row.w_first,
                                nullptr,
                                nullptr,
                                make_layout(sizes[0], {parts[0][0], parts[0][1], parts[0][2]}),
                                make_layout(sizes[1], {parts[1][0], parts[1][1], parts[1][2]}),
                                int(groups * chunks),
                                int(chunks),
                                int(per),
                                int(uses),
                                shape.numel(),
                                int(row.n),
                                int(row.taps),
                                int(row.shift + row.first),
                                int(row.last - row.first),
                                row.correlate};
    summed ? run_of<T, true>(log, problem, x.device()) : run_of<T, false>(log, problem, x.device());
  };
  dispatch_among<double, float>(x.dtype(), go);
  return sum_chunks ? sum(y, {0}, false) : y;
}

}  // namespace stretto::cuda
