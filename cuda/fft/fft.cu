// Discrete Fourier transforms of rows.
//
// y_k = Σ_j x_j e^(−2πi jk/n) by Stockham passes of radix 8, 4, 2, 3, 5 and 7; other lengths by
// Bluestein's chirp transform; real rows of even length as complex rows of half the length.
// Algorithms, error bounds and butterflies are those of ops/fft/fft_plan.h. Up to 512 threads share
// a row. Its real and imaginary planes are in shared memory for up to 8192 elements (4096 in f64),
// so that device memory is read once and written once, and otherwise in a workspace of the block;
// short rows share a block. Planes have gaps where the distances at which a pass stores would cause
// bank conflicts. Roots of unity are computed on the device in every call, in f64, and rounded
// once. Tested against the reference in tests/ops/op_table_test.cpp and the CPU.
#include "core/formulas/fft_butterfly.h"
#include "cuda/fft/fft.h"
#include "cuda/fft/unit_root.cuh"
#include "cuda/runtime/rows.cuh"

namespace stretto::cuda {
namespace {

constexpr int block_threads = 512;
constexpr int small_block = 256;
template <class T>
constexpr int small_room = 8192 / int(sizeof(T));  // for the rows that share a block

enum class Rows { complex, to_bins, from_bins };

/// Element i of a plane is at i + ⌊i / 2^shift⌋ · step.
struct Gaps {
  int shift = 0, step = 0;
  STRETTO_HD int operator()(int i) const { return i + (i >> shift) * step; }
};

/// A transform: `length` complex points, in `passes`, of planes of `room` elements; if `chirped`, a
/// chirp transform of `points` elements of data.
struct FftSteps {
  int length = 0, room = 0, points = 0, passes = 0;
  bool chirped = false;
  int radix[32] = {};
  Gaps gaps[32];  // of each pass's output
  int plane = 0;  // room including gaps
};

/// roots [count, 2] = e^(−2πi k/n)
template <class T>
__global__ void make_roots(T* roots, int64_t count, int64_t n) {
#pragma unroll 1
  for (int64_t k = thread_index(); k < count; k += thread_count()) {
    double c, s;
    unit_root_of(k, n, c, s);
    reinterpret_cast<Pack<T, 2>*>(roots)[k] = {T(c), T(s)};
  }
}

/// chirp [n, 2] = e^(−πi j²/n), and filter [room, 2] = its conjugate for |j| < n, divided by room
template <class T>
__global__ void make_chirp(T* chirp, T* filter, int64_t n, int64_t room, Divider turn) {
#pragma unroll 1
  for (int64_t i = thread_index(); i < room; i += thread_count()) {
    const int64_t j = i < n ? i : room - i;
    double c = 0, s = 0;
    if (j < n) {
      const uint64_t square = uint64_t(j) * uint64_t(j);
      unit_root_of(int64_t(square - turn.quotient(square) * turn.size), 2 * n, c, s);
    }
    if (i < n) {
      reinterpret_cast<Pack<T, 2>*>(chirp)[i] = {T(c), T(s)};
    }
    reinterpret_cast<Pack<T, 2>*>(filter)[i] = {T(c / double(room)), T(-s / double(room))};
  }
}

/// Complex element k of x.
template <class T>
__device__ inline Pack<T, 2> pair(const T* x, int64_t k) {
  return reinterpret_cast<const Pack<T, 2>*>(x)[k];
}
template <class T>
__device__ inline void put_pair(T* y, int64_t k, T re, T im) {
  reinterpret_cast<Pack<T, 2>*>(y)[k] = {re, im};
}

/// One pass, as run_pass of ops/fft/fft_plan.cpp; roots of unity of order R·m·s.
template <int R, class T>
__device__ inline void run_pass(Planes<T> from, Gaps from_gaps, Planes<T> to, Gaps to_gaps, int m,
                                int s, const T* roots) {
  const int count = m * s;
#pragma unroll 1
  for (int b = threadIdx.x; b < count; b += blockDim.x) {
    const int p = b / s, q = b - p * s;
    T re[R], im[R];
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const int at = from_gaps(b + k * count);
      re[k] = from.re[at];
      im[k] = from.im[at];
    }
    Butterfly<R, T>::run(re, im);
    const int first = p * R * s + q;
    to.re[to_gaps(first)] = re[0];
    to.im[to_gaps(first)] = im[0];
#pragma unroll
    for (int j = 1; j < R; ++j) {
      const Pack<T, 2> w = pair(roots, j * p * s);
      const int at = to_gaps(first + j * s);
      to.re[at] = re[j] * w.v[0] - im[j] * w.v[1];
      to.im[at] = re[j] * w.v[1] + im[j] * w.v[0];
    }
  }
}

/// Returns x or other, whichever holds the result. All threads of the block must take part.
template <class T>
__device__ inline Planes<T> run_passes(Planes<T> x, Planes<T> other, const FftSteps& steps,
                                       const T* roots, bool active) {
  int rest = steps.length, s = 1;
  Gaps read;
#pragma unroll 1
  for (int i = 0; i < steps.passes; ++i) {
    const Gaps stored = steps.gaps[i];
    const int radix = steps.radix[i];
    rest /= radix;
    if (active) {
      switch (radix) {
        case 8:
          run_pass<8>(x, read, other, stored, rest, s, roots);
          break;
        case 4:
          run_pass<4>(x, read, other, stored, rest, s, roots);
          break;
        case 2:
          run_pass<2>(x, read, other, stored, rest, s, roots);
          break;
        case 3:
          run_pass<3>(x, read, other, stored, rest, s, roots);
          break;
        case 5:
          run_pass<5>(x, read, other, stored, rest, s, roots);
          break;
        default:
          run_pass<7>(x, read, other, stored, rest, s, roots);
      }
    }
    __syncthreads();
    s *= radix;
    read = stored;
    const Planes<T> last = x;
    x = other;
    other = last;
  }
  return x;
}

/// x_j ← x_j f_j for j < n, 0 for n ≤ j < room
template <class T>
__device__ inline void multiply(Planes<T> x, const T* factors, int n, int room) {
#pragma unroll 1
  for (int j = threadIdx.x; j < room; j += blockDim.x) {
    const T re = j < n ? x.re[j] : T(0), im = j < n ? x.im[j] : T(0);
    const Pack<T, 2> f = j < n ? pair(factors, j) : Pack<T, 2>{};
    x.re[j] = re * f.v[0] - im * f.v[1];
    x.im[j] = re * f.v[1] + im * f.v[0];
  }
}

/// Where a row is loaded from and stored to.
template <class T>
struct FftRow {
  const T* x;
  T* y;
  const T* twiddles;  // e^(−2πi k/n) of a packed real row of n
  T edge, half, scale;
  int n;  // the number of real elements, or of complex ones
  bool inverse;
};

template <Rows kind, class T>
__device__ inline void load_row(const FftRow<T>& row, Planes<T> to, int points) {
  const T* const x = row.x;
  if (kind == Rows::from_bins && row.n % 2 == 0) {  // join_bins of ops/fft/fft_plan.cpp
    for (int k = threadIdx.x; k <= points / 2; k += blockDim.x) {
      const int other = points - k;
      if (k == 0) {
        const T a = row.edge * x[0], b = row.edge * x[2 * points];
        to.re[0] = a + b;
        to.im[0] = a - b;
        continue;
      }
      const auto [wr, minus_wi] = pair(row.twiddles, k).v;
      const auto [ar, ai] = pair(x, k).v;
      const auto [br, bi] = pair(x, other).v;
      const T wi = -minus_wi;
      const T sr = row.half * (ar + br), si = row.half * (ai - bi);
      const T dr = row.half * (ar - br), di = row.half * (ai + bi);
      const T tr = wr * dr - wi * di, ti = wr * di + wi * dr;
      to.re[other] = sr + ti;
      to.im[other] = tr - si;
      to.re[k] = sr - ti;
      to.im[k] = si + tr;
    }
  } else if (kind == Rows::from_bins) {
    for (int k = threadIdx.x; k <= points / 2; k += blockDim.x) {
      const T factor = k == 0 ? row.edge : row.half;
      const Pack<T, 2> z = pair(x, k);
      const T re = factor * z.v[0], im = k == 0 ? T(0) : factor * z.v[1];
      to.re[k] = re;
      to.im[k] = im;
      if (k == 0) continue;
      to.re[points - k] = re;
      to.im[points - k] = -im;
    }
  } else if (kind == Rows::to_bins && row.n % 2 == 1) {
    for (int j = threadIdx.x; j < points; j += blockDim.x) {
      to.re[j] = x[j];
      to.im[j] = 0;
    }
  } else {
    for (int j = threadIdx.x; j < points; j += blockDim.x) {
      const Pack<T, 2> z = pair(x, j);
      to.re[j] = z.v[0];
      to.im[j] = z.v[1];
    }
  }
}

template <Rows kind, class T>
__device__ inline void store_row(const FftRow<T>& row, Planes<T> z, int points) {
  T* const y = row.y;
  if (kind == Rows::to_bins && row.n % 2 == 0) {  // split_bins of ops/fft/fft_plan.cpp
    for (int k = threadIdx.x; k <= points / 2; k += blockDim.x) {
      const int other = points - k;
      if (k == 0) {
        put_pair(y, 0, row.edge * (z.re[0] + z.im[0]), T(0));
        put_pair(y, points, row.edge * (z.re[0] - z.im[0]), T(0));
        continue;
      }
      const auto [wr, wi] = pair(row.twiddles, k).v;
      const T er = row.half * (z.re[k] + z.re[other]), ei = row.half * (z.im[k] - z.im[other]);
      const T qr = row.half * (z.im[k] + z.im[other]), qi = row.half * (z.re[other] - z.re[k]);
      const T tr = wr * qr - wi * qi, ti = wr * qi + wi * qr;
      put_pair(y, other, er - tr, ti - ei);
      put_pair(y, k, er + tr, ei + ti);
    }
  } else if (kind == Rows::to_bins) {
    for (int k = threadIdx.x; k <= points / 2; k += blockDim.x) {
      const T factor = k == 0 ? row.edge : 2 * row.half;
      put_pair(y, k, factor * z.re[k], k == 0 ? T(0) : factor * z.im[k]);
    }
  } else if (kind == Rows::from_bins && row.n % 2 == 1) {
    for (int j = threadIdx.x; j < points; j += blockDim.x) y[j] = z.re[j];
  } else {
    for (int j = threadIdx.x; j < points; j += blockDim.x) {
      put_pair(y, j, row.scale * z.re[j], row.scale * z.im[j]);
    }
  }
}

/// Rows of x and y with `x_size` and `y_size` elements; a block transforms blockDim.y at a time.
/// workspace [gridDim.x, blockDim.y, 4, plane], or null if the planes fit into shared memory.
template <Rows kind, class T>
__global__ void __launch_bounds__(block_threads, 1)
    fft_rows(FftRow<T> row, int64_t rows, int64_t x_size, int64_t y_size, T* workspace,
             const __grid_constant__ FftSteps steps, const T* roots, const T* chirp,
             const T* spectrum) {
  extern __shared__ double shared[];
  const int room = steps.room, plane = steps.plane;
  T* const planes = (workspace ? workspace + int64_t(blockIdx.x) * blockDim.y * 4 * plane
                               : reinterpret_cast<T*>(shared)) +
                    int64_t(threadIdx.y) * 4 * plane;
  const T* const x = row.x;
  T* const y = row.y;
#pragma unroll 1
  for (int64_t first = int64_t(blockIdx.x) * blockDim.y; first < rows;
       first += int64_t(gridDim.x) * blockDim.y) {
    const bool active = first + threadIdx.y < rows;
    row.x = x + (first + threadIdx.y) * x_size;
    row.y = y + (first + threadIdx.y) * y_size;
    const Planes<T> a{planes, planes + plane}, b{planes + 2 * plane, planes + 3 * plane};
    if (active) load_row<kind>(row, a, steps.points);
    __syncthreads();
    Planes<T> current = row.inverse ? a.swapped() : a, other = row.inverse ? b.swapped() : b;
    if (steps.chirped) {  // y_k = c_k Σ_j (x_j c_j) c̄_k−j
      if (active) multiply(current, chirp, steps.points, room);
      __syncthreads();
      Planes<T> z = run_passes(current, other, steps, roots, active);
      if (z.re != current.re) {
        other = current;
        current = z;
      }
      if (active) multiply(current, spectrum, room, room);
      __syncthreads();
      z = run_passes(current.swapped(), other.swapped(), steps, roots, active).swapped();
      if (active) multiply(z, chirp, steps.points, steps.points);
      __syncthreads();
      current = z;
    } else {
      current = run_passes(current, other, steps, roots, active);
    }
    if (active) store_row<kind>(row, row.inverse ? current.swapped() : current, steps.points);
    __syncthreads();  // before the next rows
  }
}

template <class T>
Tensor roots_of(int64_t count, int64_t n, Device device) {
  Tensor roots = empty({count, 2}, {.dtype = dtype_of<T>(), .device = device});
  launch("fft", device.index, make_roots<T>, blocks_for(count, 128), 128, roots.data<T>(), count,
         n);
  return roots;
}

FftSteps steps_of(int64_t points) {
  check(points < int64_t(1) << 27, "fft", "a transform of ", points,
        " points; on CUDA fewer than 2^27");
  FftSteps steps;
  steps.points = int(points);
  std::vector<int> radices = fft_radices(points);
  int64_t length = points;
  if (points > 1 && radices.empty()) {
    steps.chirped = true;
    for (length = 1; length < 2 * points - 1;) length *= 2;
    radices = fft_radices(length);
  }
  steps.length = steps.room = steps.plane = int(length);
  for (const int r : radices) steps.radix[steps.passes++] = r;
  return steps;
}

/// Adds gaps for planes in shared memory. A pass stores runs of s elements, R·s apart, as long as s
/// is less than a warp: a gap of s after each R·s, at least 32, spreads them over the banks. The
/// output of the last pass has no gaps, like the input of the first.
FftSteps with_gaps(FftSteps steps) {
  for (int i = 0, s = 1; i + 1 < steps.passes && s < 32; s *= steps.radix[i++]) {
    int shift = 5;
    while (1 << shift < steps.radix[i] * s) ++shift;
    steps.gaps[i] = {shift, s};
    steps.plane = std::max(steps.plane, steps.gaps[i](steps.room - 1) + 1);
  }
  return steps;
}

template <Rows kind, class T>
void run(const Tensor& input, const Tensor& y, int64_t n, bool inverse, double edge, double middle,
         double scale) {
  const Tensor x = row_major(input);
  const Device device = x.device();
  const bool packed = kind != Rows::complex && n % 2 == 0;
  const int64_t x_size = kind == Rows::complex   ? 2 * n
                         : kind == Rows::to_bins ? n
                                                 : 2 * (n / 2 + 1);
  const int64_t y_size = kind == Rows::complex   ? 2 * n
                         : kind == Rows::to_bins ? 2 * (n / 2 + 1)
                                                 : n;
  const int64_t rows = x.numel() / x_size;
  FftSteps steps = steps_of(packed ? n / 2 : n);
  const Tensor roots = roots_of<T>(steps.length, steps.length, device);
  const Tensor twiddles = packed ? roots_of<T>(n / 4 + 1, n, device) : roots;
  Tensor chirp = roots, spectrum = roots;
  if (steps.chirped) {
    const TensorOptions options{.dtype = x.dtype(), .device = device};
    chirp = empty({steps.points, 2}, options);
    const Tensor filter = empty({steps.room, 2}, options);
    spectrum = empty({steps.room, 2}, options);
    launch("fft", device.index, make_chirp<T>, blocks_for(steps.room, 128), 128, chirp.data<T>(),
           filter.data<T>(), int64_t(steps.points), int64_t(steps.room),
           Divider(2 * int64_t(steps.points)));
    run<Rows::complex, T>(filter, spectrum, steps.room, false, 1, 1, 1);
  }
  const FftSteps gapped = with_gaps(steps);
  const bool fits = int64_t(gapped.plane) * 4 * int64_t(sizeof(T)) <= shared_memory(device.index);
  if (fits) steps = gapped;
  const bool small = steps.room <= small_room<T>;
  const int most = small ? small_block : block_threads;
  int threads = 32;
  while (threads < most && threads * 4 < steps.room) threads *= 2;
  const int height = small ? std::min(most / threads, small_room<T> / steps.room) : 1;
  const unsigned blocks =
      unsigned(std::min<int64_t>(ceil_div(rows, height), fits ? 4096 : 2 * planned_sms));
  Tensor workspace;
  if (!fits)
    workspace = empty({int64_t(blocks), 4, steps.plane}, {.dtype = x.dtype(), .device = device});
  const FftRow<T> row{x.data<T>(), y.data<T>(),   twiddles.data<T>(),
                      T(edge),     T(middle / 2), T(scale),
                      int(n),      inverse};
  const int64_t bytes = fits ? int64_t(height) * 4 * steps.plane * int64_t(sizeof(T)) : 0;
  launch_with_shared("fft", device.index, fft_rows<kind, T>, blocks,
                     dim3(unsigned(threads), unsigned(height)), bytes, row, rows, x_size, y_size,
                     fits ? nullptr : workspace.data<T>(), steps,
                     static_cast<const T*>(roots.data<T>()), static_cast<const T*>(chirp.data<T>()),
                     static_cast<const T*>(spectrum.data<T>()));
}

template <Rows kind>
void run_any(const Tensor& x, const Tensor& y, int64_t n, bool inverse, double edge, double middle,
             double scale) {
  x.dtype() == f64 ? run<kind, double>(x, y, n, inverse, edge, middle, scale)
                   : run<kind, float>(x, y, n, inverse, edge, middle, scale);
}

/// y = a · b, complex; the layout's operands are y, a and b, in complex elements
template <class T>
__global__ void multiply_complex(Pack<T, 2>* y, const Pack<T, 2>* a, const Pack<T, 2>* b,
                                 const __grid_constant__ Layout<3> layout, uint64_t n) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<3> at = offsets(layout, i);
    const Pack<T, 2> u = a[at.v[1]], v = b[at.v[2]];
    y[at.v[0]] = {u.v[0] * v.v[0] - u.v[1] * v.v[1], u.v[0] * v.v[1] + u.v[1] * v.v[0]};
  }
}

}  // namespace

void fft_complex(const Tensor& x, const Tensor& y, bool inverse, double scale) {
  run_any<Rows::complex>(x, y, x.size(-2), inverse, 1, 1, scale);
}
void fft_to_bins(const Tensor& x, const Tensor& y, double edge, double middle) {
  run_any<Rows::to_bins>(x, y, x.size(-1), false, edge, middle, 1);
}
void fft_from_bins(const Tensor& x, const Tensor& y, double edge, double middle) {
  run_any<Rows::from_bins>(x, y, y.size(-1), true, edge, middle, 1);
}

Tensor complex_product(const Tensor& a, const Tensor& b) {
  auto numbers = [](const Shape& s) { return Shape(s.begin(), s.dim() - 1); };
  const Shape sizes = broadcast_shapes("complex_product", numbers(a.shape()), numbers(b.shape()));
  Shape shape = sizes;
  shape.push_back(2);
  Tensor y = empty_like(a, shape);
  if (y.numel() == 0) return y;
  auto strides_of = [&](const Tensor& x) {
    Shape strides = numbers(x.strides());
    for (int64_t& s : strides) s /= 2;
    return broadcast_strides(numbers(x.shape()), strides, sizes);
  };
  const Layout<3> layout = make_layout(sizes, {strides_of(y), strides_of(a), strides_of(b)});
  auto launch_as = [&]<class T>() {
    auto packs = [](const Tensor& x) { return static_cast<Pack<T, 2>*>(x.raw_data()); };
    launch("complex_product", y.device().index, multiply_complex<T>, blocks_for(y.numel() / 2, 256),
           256, packs(y), static_cast<const Pack<T, 2>*>(packs(a)),
           static_cast<const Pack<T, 2>*>(packs(b)), layout, uint64_t(y.numel() / 2));
  };
  dispatch_among<double, float>(a.dtype(), launch_as);
  return y;
}

}  // namespace stretto::cuda
