#include "ops/fft/fft_conv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "autograd/tape.h"
#include "cuda/fft/fft.h"
#include "cuda/fft/fft_conv.h"
#include "cuda/runtime/composed.h"
#include "ops/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/fft/fft_plan.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

// All kinds of padding, and all gradients, have this form along each axis, with zeros around x:
//     y[t] = Σ_p w[p] x[t + offset − p],   0 ≤ t < length
struct Span {
  int64_t offset = 0, length = 1;
};
struct Spans {
  Span d[2];  // the second to last axis, and the last
};

// One axis, reduced to the elements of x and w that reach an output: y[t] = Σ_p w[w_first + p]
// x[x_first + t + offset − p], p < taps, with x[x_first + s] for 0 ≤ s < n. Only outputs first …
// last − 1 may be nonzero.
struct Axis {
  int64_t n, taps, x_first, w_first, offset, length, first, last;

  Axis(int64_t x_size, int64_t w_size, Span span) : length(span.length) {
    x_first = std::max<int64_t>(0, span.offset - w_size + 1);
    w_first = std::max<int64_t>(0, span.offset - x_size + 1);
    n = std::min(x_size, span.offset + length) - x_first;
    taps = std::min(w_size, span.offset + length) - w_first;
    offset = span.offset - x_first - w_first;
    first = std::clamp<int64_t>(-offset, 0, length);
    last = n <= 0 || taps <= 0 ? first : std::clamp<int64_t>(n + taps - 1 - offset, first, length);
  }

  // The smallest transform length for which outputs that wrap around are not added to
  // outputs in use.
  int64_t least_transform() const {
    const int64_t whole = n + taps - 1;
    return std::max({n, taps, whole - (first + offset), last + offset});
  }
};

// The smallest length ≥ `least` that is fast to transform; even if a real transform needs it.
int64_t quick_length(int64_t least, bool even) {
  int64_t best = INT64_MAX;
  for (const int64_t odd : {1, 3, 5, 7, 9, 15}) {
    int64_t n = even ? 2 * odd : odd;
    while (n < least) n *= 2;
    best = std::min(best, n);
  }
  return best;
}

// The offsets of all entries of the dimensions d with taken[d] ≠ 0, row-major.
std::vector<int64_t> positions(const Shape& sizes, const Shape& strides, const Shape& taken) {
  std::vector<int64_t> at = {0};
  for (int64_t d = 0; d < sizes.dim(); ++d) {
    if (taken[d] == 0) continue;
    std::vector<int64_t> next;
    for (const int64_t start : at)
      for (int64_t i = 0; i < sizes[d]; ++i) next.push_back(start + i * strides[d]);
    at = std::move(next);
  }
  return at;
}

// The sizes and offsets of the matrices x, w and y of one convolution. Result (f, u) is the u-th
// convolution with filter f. It is at offset y_filter[f] + y_use[u] of y and needs the matrix at
// offset x_filter[f] + x_use[u] of x.
struct ConvolutionProblem {
  Axis rows, columns;
  int64_t x_pitch, w_pitch;  // strides of rows
  std::vector<int64_t> w_filter, x_filter, y_filter, x_use, y_use;
  int64_t transform_rows = 0, transform_columns = 0;

  ConvolutionProblem(const Tensor& x, const Tensor& w, const Shape& batch, const Spans& spans)
      : rows(x.size(-2), w.size(-2), spans.d[0]),
        columns(x.size(-1), w.size(-1), spans.d[1]),
        x_pitch(x.size(-1)),
        w_pitch(w.size(-1)) {
    const Shape x_strides = leading_strides(x, batch), w_strides = leading_strides(w, batch);
    Shape y_strides = contiguous_strides(batch), own = batch, shared = batch;
    for (int64_t d = 0; d < batch.dim(); ++d) {
      y_strides[d] *= rows.length * columns.length;
      own[d] = w_strides[d] != 0;
      shared[d] = w_strides[d] == 0;
    }
    w_filter = positions(batch, w_strides, own);
    x_filter = positions(batch, x_strides, own);
    y_filter = positions(batch, y_strides, own);
    x_use = positions(batch, x_strides, shared);
    y_use = positions(batch, y_strides, shared);
    if (nothing()) return;
    transform_rows = quick_length(rows.least_transform(), false);
    transform_columns = quick_length(columns.least_transform(), true);
  }

  int64_t filters() const { return int64_t(w_filter.size()); }
  int64_t uses() const { return int64_t(x_use.size()); }
  bool nothing() const { return rows.first == rows.last || columns.first == columns.last; }

  static Shape leading_strides(const Tensor& x, const Shape& batch) {
    const Shape sizes(x.shape().begin(), x.dim() - 2), strides(x.strides().begin(), x.dim() - 2);
    Shape shown = broadcast_strides(sizes, strides, batch);
    for (int64_t d = 0; d < batch.dim(); ++d) {
      const int64_t own = d - (batch.dim() - sizes.dim());
      if (own < 0 || sizes[own] == 1) shown[d] = 0;
    }
    return shown;
  }
};

// True if direct sums are estimated to be faster than transforms, for one matrix of results.
bool direct_is_faster(const ConvolutionProblem& q) {
  constexpr int64_t vector = 16;
  const int64_t width = (q.columns.length + vector - 1) / vector * vector;
  const double products =
      double(q.rows.length) * double(width) * double(q.rows.taps) * double(q.columns.taps);
  const double points = double(q.transform_rows) * double(q.transform_columns);
  return products <= 16 * points * (0.4 * std::log2(points) + 3);
}

// ---------------------------------------------------------------------------- directly

// Computes `vectors` vectors of results of a row, and stores `count` of them. The rows of x have
// stride `pitch`: tap row r multiplies the row at x − r · pitch, and x[j] is the element for result
// j and the last tap of a row.
template <int vectors, class T>
inline __attribute__((always_inline)) void direct_tile(const T* x, int64_t pitch, const T* w,
                                                       int64_t w_pitch, int64_t tap_rows,
                                                       int64_t taps, T* y, int64_t count) {
  typedef T V __attribute__((vector_size(64)));
  constexpr int64_t lanes = int64_t(sizeof(V) / sizeof(T));
  V sum[vectors] = {};
  for (int64_t r = 0; r < tap_rows; ++r) {
    const T *row = x - r * pitch, *tap = w + r * w_pitch;
    for (int64_t p = 0; p < taps; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        V numbers;
        std::memcpy(&numbers, row + taps - 1 - p + v * lanes, sizeof(V));
        sum[v] += numbers * tap[p];
      }
    }
  }
  std::memcpy(y, sum, size_t(count) * sizeof(T));
}

template <class T>
STRETTO_CLONES void direct_row(const T* x, int64_t pitch, const T* w, int64_t w_pitch,
                               int64_t tap_rows, int64_t taps, T* y, int64_t width) {
  constexpr int64_t lanes = 64 / int64_t(sizeof(T));
  int64_t t = 0;
  for (; t + 4 * lanes <= width; t += 4 * lanes)
    direct_tile<4>(x + t, pitch, w, w_pitch, tap_rows, taps, y + t, 4 * lanes);
  for (; t < width; t += lanes)
    direct_tile<1>(x + t, pitch, w, w_pitch, tap_rows, taps, y + t, std::min(lanes, width - t));
}

template <class T>
void convolve_directly(const ConvolutionProblem& q, const T* x, const T* w, T* y) {
  const Axis &rows = q.rows, &columns = q.columns;
  const int64_t cost = rows.length * columns.length * rows.taps * columns.taps;
  const int64_t grain = std::max<int64_t>(1, (1 << 17) / std::max<int64_t>(1, cost));
  parallel_for(q.filters() * q.uses(), grain, [&](int64_t begin, int64_t end) {
    // x with the zeros that the taps read around each row, and padding that the last
    // vector may read.
    const int64_t pitch = columns.length + columns.taps - 1 + 64;
    const Tensor padded = empty({rows.n, pitch}, {.dtype = dtype_of<T>(), .device = cpu});
    T* const buffer = padded.data<T>();
    const int64_t before = columns.taps - 1 - columns.offset;
    std::memset(buffer, 0, size_t(rows.n * pitch) * sizeof(T));
    for (int64_t i = begin; i < end; ++i) {
      const auto f = size_t(i / q.uses()), u = size_t(i % q.uses());
      const T* from = x + q.x_filter[f] + q.x_use[u] + rows.x_first * q.x_pitch + columns.x_first;
      const T* taps = w + q.w_filter[f] + rows.w_first * q.w_pitch + columns.w_first;
      T* to = y + q.y_filter[f] + q.y_use[u];
      for (int64_t r = 0; r < rows.n; ++r)
        std::memcpy(buffer + r * pitch + before, from + r * q.x_pitch,
                    size_t(columns.n) * sizeof(T));
      for (int64_t t = 0; t < rows.length; ++t) {
        // Tap row p multiplies row t + offset − p of x, if it exists.
        const int64_t first = std::max<int64_t>(0, t + rows.offset - rows.n + 1);
        const int64_t count =
            std::max<int64_t>(0, std::min(rows.taps, t + rows.offset + 1) - first);
        const T* top = count == 0 ? buffer : buffer + (t + rows.offset - first) * pitch;
        direct_row(top, pitch, taps + first * q.w_pitch, q.w_pitch, count, columns.taps,
                   to + t * columns.length, columns.length);
      }
    }
  });
}

// ---------------------------------------------------------------------------- by transforms

// x ← x w.
template <class T>
STRETTO_CLONES void multiply_spectra(Planes<T> x, Planes<T> w, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T re = x.re[i], im = x.im[i];
    x.re[i] = re * w.re[i] - im * w.im[i];
    x.im[i] = re * w.im[i] + im * w.re[i];
  }
}

// The transforms of a problem, on one matrix per vector lane.
template <class T>
class Transforms {
 public:
  Transforms(const ConvolutionProblem& q)
      : rows_(q.transform_rows),
        along_row_(RealFftPlan<T>::of(q.transform_columns)),
        along_column_(FftPlan<T>::of(rows_)),
        scale_(1.0 / (double(rows_) * double(q.transform_columns))) {}

  /// The number of complex elements of a matrix's spectrum.
  int64_t size() const { return rows_ * along_row_->bins(); }

  /// Computes the spectra of matrices [n, width] with row stride `pitch`, padded with zeros.
  Planes<T> forward(const T* const* from, int64_t n, int64_t width, int64_t pitch, Planes<T> a,
                    Planes<T> b, int64_t lanes) const {
    const int64_t row_size = along_row_->bins() * lanes;
    Planes<T> here = a;
    for (int64_t r = 0; r < n; ++r) {
      const T* row[most_fft_lanes];
      for (int64_t l = 0; l < lanes; ++l) row[l] = from[l] + r * pitch;
      const Planes<T> place = a.at(r * row_size);
      load_rows(row, width, true, place, lanes, along_row_->elements());
      if (along_row_->forward(place, b.at(r * row_size), lanes, {}).re != place.re) here = b;
    }
    const auto rest = size_t((rows_ - n) * row_size) * sizeof(T);
    std::memset(here.re + n * row_size, 0, rest);
    std::memset(here.im + n * row_size, 0, rest);
    return along_column_->forward(here, here.re == a.re ? b : a, row_size);
  }

  /// Computes the inverse transform and stores the outputs of the axes in the matrices `to`.
  void inverse(Planes<T> a, Planes<T> b, int64_t lanes, const Axis& rows, const Axis& columns,
               T* const* to) const {
    const int64_t row_size = along_row_->bins() * lanes;
    const Planes<T> here = along_column_->inverse(a, b, row_size);
    const Planes<T> other = here.re == a.re ? b : a;
    for (int64_t t = rows.first; t < rows.last; ++t) {
      const int64_t at = (t + rows.offset) * row_size;
      const Planes<T> row =
          along_row_->inverse(here.at(at), other.at(at), lanes, {scale_, 2 * scale_});
      T* target[most_fft_lanes];
      for (int64_t l = 0; l < lanes; ++l) target[l] = to[l] + t * columns.length + columns.first;
      store_rows(row, columns.first + columns.offset, columns.last - columns.first, true, target,
                 lanes);
    }
  }

 private:
  int64_t rows_;
  const std::shared_ptr<const RealFftPlan<T>> along_row_;
  const std::shared_ptr<const FftPlan<T>> along_column_;
  double scale_;
};

template <class T>
void convolve_by_fft(const ConvolutionProblem& q, const T* x, const T* w, T* y) {
  const Axis &rows = q.rows, &columns = q.columns;
  const Transforms<T> transforms(q);
  const int64_t lanes = fft_lanes<T>(2 * transforms.size());
  // The lanes are several uses of one filter, or the same use of several filters, so that
  // neighboring groups share spectra.
  const bool across_uses = q.uses() >= lanes;
  const int64_t inner = across_uses ? (q.uses() + lanes - 1) / lanes : q.uses();
  const int64_t outer = across_uses ? q.filters() : (q.filters() + lanes - 1) / lanes;
  const int64_t missing =
      rows.length * columns.length - (rows.last - rows.first) * (columns.last - columns.first);
  // Chunks are long enough to profit from shared spectra, if enough chunks remain for the threads.
  const int64_t grain =
      std::max(rows_per_chunk(16 * transforms.size() * lanes), std::min(inner, outer * inner / 8));
  parallel_for(outer * inner, grain, [&](int64_t begin, int64_t end) {
    const FftWorkspace<T> work(4, transforms.size() * lanes);
    Planes<T> filter;
    int64_t filter_of = -1, filter_lanes = 0;
    for (int64_t group = begin; group < end; ++group) {
      const int64_t o = group / inner, i = group % inner;
      const int64_t f0 = across_uses ? o : o * lanes, u0 = across_uses ? i * lanes : i;
      const int64_t count = std::min(lanes, across_uses ? q.uses() - u0 : q.filters() - f0);
      const T *from[most_fft_lanes], *taps[most_fft_lanes];
      T* to[most_fft_lanes];
      for (int64_t l = 0; l < count; ++l) {
        const auto f = size_t(across_uses ? f0 : f0 + l), u = size_t(across_uses ? u0 + l : u0);
        from[l] = x + q.x_filter[f] + q.x_use[u] + rows.x_first * q.x_pitch + columns.x_first;
        taps[l] = w + q.w_filter[f] + rows.w_first * q.w_pitch + columns.w_first;
        to[l] = y + q.y_filter[f] + q.y_use[u];
        if (missing > 0) std::fill_n(to[l], rows.length * columns.length, T(0));
      }
      if (filter_of != f0 || filter_lanes != count) {
        filter =
            transforms.forward(taps, rows.taps, columns.taps, q.w_pitch, work[2], work[3], count);
        filter_of = f0;
        filter_lanes = count;
      }
      const Planes<T> spectrum =
          transforms.forward(from, rows.n, columns.n, q.x_pitch, work[0], work[1], count);
      multiply_spectra(spectrum, filter, transforms.size() * count);
      transforms.inverse(spectrum, spectrum.re == work[0].re ? work[1] : work[0], count, rows,
                         columns, to);
    }
  });
}

// ---------------------------------------------------------------------------- the op

Shape leading(const Tensor& x) { return Shape(x.shape().begin(), x.dim() - 2); }

cuda::ConvAxis on_cuda(const Axis& a) {
  return {a.n, a.taps, a.x_first, a.w_first, a.offset, a.length};
}

// The same for the kernel that convolves whole rows.
cuda::RowConvolution of_rows(const Axis& a) {
  return {a.n,      a.taps,  a.x_first, a.w_first,           a.offset,
          a.length, a.first, a.last,    a.least_transform(), false};
}
// The convolution with the reversed filter: a correlation with w, which has w_size elements.
cuda::RowConvolution of_reversed(const Axis& a, int64_t w_size) {
  cuda::RowConvolution row = of_rows(a);
  row.w_first = w_size - a.w_first - a.taps;
  row.shift = a.offset - (a.taps - 1);
  row.correlate = true;
  return row;
}

// True if one kernel computes x ∗ w, both [.., 1, n]. On CUDA transforms are faster only for more
// taps than on the CPU, because many threads compute direct sums in parallel.
bool in_one_kernel(const Tensor& x, const Tensor& w, const Axis& a, ConvForm implementation) {
  if (!x.device().is_cuda() || implementation == ConvForm::direct || x.size(-2) != 1 ||
      w.size(-2) != 1)
    return false;
  if (a.first == a.last || (implementation == ConvForm::automatic && a.taps <= 32)) return false;
  return cuda::convolves_rows(of_rows(a), x.dtype()) && !cuda::composed("fft_conv", x.device());
}

// The convolution on CUDA: direct sums, rows in one kernel, or the transforms of ops/fft/fft.h.
Tensor computed_cuda(const Tensor& x, const Tensor& w, const Tensor& y, const Spans& spans,
                     ConvForm implementation) {
  const Axis rows(x.size(-2), w.size(-2), spans.d[0]), columns(x.size(-1), w.size(-1), spans.d[1]);
  if (rows.first == rows.last || columns.first == columns.last) return y.zero_();
  if (rows.length == 1 && in_one_kernel(x, w, columns, implementation))
    return cuda::convolve_rows(x, w, of_rows(columns), Shape(y.shape().begin(), y.dim() - 1));
  if (implementation == ConvForm::automatic)
    implementation = rows.taps * columns.taps <= 128 ? ConvForm::direct : ConvForm::fft;
  if (implementation == ConvForm::direct)
    return cuda::convolve_directly(x, w, on_cuda(rows), on_cuda(columns));
  const int64_t height = quick_length(rows.least_transform(), false);
  const int64_t width = quick_length(columns.least_transform(), true);
  const auto spectrum = [&](const Tensor& v, int64_t row, int64_t n_rows, int64_t column,
                            int64_t n) {
    const Tensor part = v.slice(-2, row, row + n_rows).slice(-1, column, column + n);
    const Tensor padded = pad(pad(part, -1, 0, width - n), -2, 0, height - n_rows);
    return height == 1 ? rfft(padded) : rfft2(padded);
  };
  const Tensor product =
      cuda::complex_product(spectrum(x, rows.x_first, rows.n, columns.x_first, columns.n),
                            spectrum(w, rows.w_first, rows.taps, columns.w_first, columns.taps));
  const Tensor whole = height == 1 ? irfft(product, width) : irfft2(product, width);
  const auto kept = [](const Tensor& v, const Axis& r, const Axis& c, int64_t by_row, int64_t by) {
    return v.slice(-2, r.first + by_row, r.last + by_row).slice(-1, c.first + by, c.last + by);
  };
  y.zero_();
  kept(y, rows, columns, 0, 0).copy_(kept(whole, rows, columns, rows.offset, columns.offset));
  return y;
}

Tensor computed(const Tensor& left, const Tensor& right, const Spans& spans,
                ConvForm implementation) {
  const Tensor x = left.detach().contiguous(), w = right.detach().contiguous();
  const Shape batch = broadcast_shapes("fft_conv", leading(x), leading(w));
  Shape shape = batch;
  for (const Span& span : spans.d) shape.push_back(span.length);
  Tensor y = empty_like(x, shape);
  if (y.numel() == 0) return y;
  if (x.device().is_cuda()) return computed_cuda(x, w, y, spans, implementation);
  const ConvolutionProblem q(x, w, batch, spans);
  if (q.nothing()) return y.zero_();
  if (implementation == ConvForm::automatic)
    implementation = direct_is_faster(q) ? ConvForm::direct : ConvForm::fft;
  const auto run = [&]<class T>() {
    const auto convolve =
        implementation == ConvForm::direct ? convolve_directly<T> : convolve_by_fft<T>;
    convolve(q, x.data<T>(), w.data<T>(), y.data<T>());
  };
  dispatch_among<double, float>(x.dtype(), run);
  return y;
}

Tensor reversed(const Tensor& x) { return flip(flip(x, -1), -2); }

// The gradient of x (or w) [.., 1, n] from g and w (or x), detached and in one kernel; undefined if
// the kernel does not support it.
Tensor gradient_of_rows(const Tensor& g, const Tensor& of, const Tensor& other, const Spans& spans,
                        ConvForm implementation) {
  if (grad_enabled() || of.size(-2) != 1 || g.size(-2) != 1 || g.numel() == 0) return {};
  const Axis a(g.size(-1), other.size(-1), spans.d[1]);
  if (!in_one_kernel(g, other, a, implementation)) return {};
  return cuda::convolve_rows(g.detach().contiguous(), other.detach().contiguous(),
                             of_reversed(a, other.size(-1)),
                             Shape(of.shape().begin(), of.dim() - 1));
}

Tensor convolve(const Tensor& x, const Tensor& w, const Spans& spans, ConvForm implementation) {
  // Gradients: dx[s] = Σ_t g[t] w[t + offset − s], dw[p] = Σ_t g[t] x[t + offset − p].
  return record("fft_conv", {x, w}, computed(x, w, spans, implementation),
                [x = Saved(x), w = Saved(w), spans, implementation](Backward& b) {
                  // dx is a convolution of g with the reversed filter, dw one of reversed x with g.
                  Spans for_x, for_w;
                  for (int d : {0, 1}) {
                    const int64_t n = x().size(d - 2), taps = w().size(d - 2);
                    for_x.d[d] = {taps - 1 - spans.d[d].offset, n};
                    for_w.d[d] = {n - 1 - spans.d[d].offset, taps};
                  }
                  const Tensor& g = b.grad();
                  Tensor dx, dw;
                  if (b.needs(0)) {
                    dx = gradient_of_rows(g, x(), w(), for_x, implementation);
                    if (!dx.defined())
                      dx = sum_to(convolve(g, reversed(w()), for_x, implementation), x().shape());
                  }
                  if (b.needs(1)) {
                    dw = gradient_of_rows(g, w(), x(), for_w, implementation);
                    if (!dw.defined())
                      dw = sum_to(convolve(reversed(x()), g, for_w, implementation), w().shape());
                  }
                  return Tensors{dx, dw};
                });
}

// Sums entries at distance n along d: wraps a sequence around a circle of n positions.
Tensor folded(const Tensor& x, int64_t d, int64_t n) {
  if (x.size(d) == n) return x;
  const int64_t rounds = (x.size(d) + n - 1) / n;
  d = wrap_dim("fft_conv", d, x.dim());
  Shape shape = x.shape();
  shape[d] = n;
  shape.insert(d, rounds);
  return sum(pad(x, d, 0, rounds * n - x.size(d)).reshape(shape), {d});
}

}  // namespace

Tensor fft_conv(const Tensor& x, const Tensor& w, const FftConvOptions& options) {
  const int64_t axes = options.axes;
  check(axes == 1 || axes == 2, "fft_conv", "axes is ", axes, "; accepted: 1, 2");
  check(x.dim() >= axes && w.dim() >= axes && x.dtype() == w.dtype() && is_floating(x.dtype()),
        "fft_conv", "x ", x, ", w ", w, "; both must have one floating-point dtype and at least ",
        axes, axes == 1 ? " dimension" : " dimensions");
  for (int64_t d = 1; d <= axes; ++d) {
    const int64_t n = x.size(-d), taps = w.size(-d);
    check(n >= 1 && taps >= 1, "fft_conv", "x ", x, ", w ", w,
          "; the sizes that are convolved must be at least 1");
    check(options.padding != Padding::valid || taps <= n, "fft_conv", "x ", x, ", w ", w,
          "; without padding the filter (", taps, " elements) must not be longer than x (", n, ")");
  }
  check_same_device("fft_conv", {&x, &w});
  if (axes == 1) {
    FftConvOptions both = options;
    both.axes = 2;
    return fft_conv(x.unsqueeze(-2), w.unsqueeze(-2), both).squeeze(-2);
  }
  if (is_narrow(x.dtype())) return fft_conv(widened(x), widened(w), options).to(x.dtype());
  Spans spans;
  for (int d : {0, 1}) {
    const int64_t n = x.size(d - 2), taps = w.size(d - 2);
    spans.d[d] = options.padding == Padding::causal  ? Span{0, n}
                 : options.padding == Padding::valid ? Span{taps - 1, n - taps + 1}
                                                     : Span{0, n + taps - 1};
  }
  Tensor y = convolve(x, w, spans, options.implementation);
  if (options.padding != Padding::circular) return y;
  return folded(folded(y, -1, x.size(-1)), -2, x.size(-2));
}

}  // namespace stretto
