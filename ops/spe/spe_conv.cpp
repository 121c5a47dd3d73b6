// convSPE: codes (see ops/spe/spe.h) that are filtered white noise.
//
// For one head and dimension the noise is Z [positions, R]. It is generated again from the random
// key, or read if it is given, for each segment of positions. The code C of a block of up to 32
// positions is a matrix product with the band matrix T of the filter w [P],
//
//     C = T Z,   T[i, s] = w[i + P − 1 − s]        dw[p] = Σ_i (dC Zᵀ)[i, i + P − 1 − p]
//
// with R·(P + 31) multiplications per position, for queries and again for keys. dw costs as
// much: dC Zᵀ is summed over blocks before its diagonals are summed. In two dimensions there
// is a band matrix for each row of the filter. Long filters use fft_conv() instead, on
// segments of 2P positions.
#include <algorithm>
#include <cmath>

#include "core/gemm/gemm.h"
#include "cuda/spe/spe.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/spe/spe_conv_source.h"
#include "ops/view.h"

namespace stretto {

// Writes the noise of one head and dimension, index h·D + d, as [ny, nx, R].
template <class T>
void ConvSource::read_noise(int64_t index, Window w, T* to) const {
  const int64_t n = w.nx * realizations;
  const auto copy = [&](const auto* from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) *to++ = T(from[i]);
  };
  for (int64_t y = w.y0; y < w.y0 + w.ny; ++y) {
    if (given.defined()) {
      const int64_t at = ((index * given.size(2) + y) * given.size(3) + w.x0) * realizations;
      given.dtype() == f64 ? copy(given.data<double>() + at, n) : copy(given.data<float>() + at, n);
      continue;
    }
    const int64_t first = first_draw(index, y, w.x0);
    if constexpr (std::is_same_v<T, float>) {
      normal_draws(key, first, n, to);
      to += n;
      continue;
    }
    float values[256];
    for (int64_t i = 0; i < n; i += 256) {
      const int64_t count = std::min<int64_t>(256, n - i);
      normal_draws(key, first + i, count, values);
      copy(values, count);
    }
  }
}

namespace {

Tensor valid_conv(const Tensor& x, const Tensor& w) {
  return fft_conv(x, w, {.padding = Padding::valid, .implementation = ConvForm::fft});
}

// Computes each span by the faster method: by band matrices or, in one dimension, by Fourier
// transforms of the whole span.
template <class T>
class ConvRows : public SpeRows<T> {
 public:
  static constexpr int64_t block = 32;

  ConvRows(const ConvSource& s, const Tensors& inputs, const Tensors& gradients)
      : source_(s), plane_(s.plane), r_(s.realizations), inputs_(inputs), gradients_(gradients) {
    const TensorOptions options{.dtype = dtype_of<T>(), .device = cpu};
    int64_t directly = s.segment;
    while (directly > 1 && by_transforms(directly)) --directly;
    const int64_t image_rows = plane_.image ? (directly - 2) / plane_.columns + 2 : 1;
    const int64_t width = s.window({0, directly}).nx;
    z_ = empty({image_rows + plane_.tap_rows - 1, width, r_}, options);
    rows_ = empty({directly, r_}, options);
    for (const Side side : both_sides) {
      bands_[int(side)] = zeros({plane_.tap_rows, block, band_width()}, options);
      if (!gradients.empty()) products_[int(side)] = zeros_like(bands_[int(side)]);
    }
  }

  void prepare(int64_t h, int64_t d, SpeSpan span) override {
    const Window before = window_;
    const bool same = index_ == h * source_.d + d;
    // If this span begins where the previous one ended, the noise of its first P − 1 columns is
    // already in z_.
    const bool continues = same && !plane_.image && !transformed_ && span.p0 == span_.p1;
    index_ = h * source_.d + d;
    span_ = span;
    window_ = source_.window(span);
    transformed_ = by_transforms(span.size());
    if (transformed_) {
      const Tensor z = empty({window_.nx, r_}, {.dtype = dtype_of<T>(), .device = cpu});
      source_.read_noise(index_, window_, z.data<T>());
      transposed_ = z.transpose(0, 1).contiguous();
      for (Tensor& code : codes_) code = {};
      return;
    }
    T* const z = z_.template data<T>();
    const int64_t known = continues ? plane_.taps - 1 : 0;
    std::copy_n(z + (before.nx - known) * r_, known * r_, z);
    Window rest = window_;
    rest.x0 += known, rest.nx -= known;
    source_.read_noise(index_, rest, z + known * r_);
    if (bands_index_ == index_) return;
    bands_index_ = index_;
    for (const Side side : both_sides) fill_band(side);
  }

  const T* rows(Side side, SpeSpan span) override {
    if (transformed_) return transformed_rows(side) + (span.p0 - span_.p0) * r_;
    T* const to = rows_.template data<T>();
    each_block(span, [&](int64_t at, int64_t n, int64_t tap_row, const T* z) {
      gemm(n, r_, n + plane_.taps - 1, T(1),
           {bands_[int(side)].template data<T>() + tap_row * block * band_width(), band_width()},
           {z, r_}, T(tap_row > 0), to + (at - span.p0) * r_, r_);
    });
    return to;
  }

  void add_gradient(Side side, SpeSpan span, const T* g) override {
    if (transformed_) return add_transformed(side, span, g);
    each_block(span, [&](int64_t at, int64_t n, int64_t tap_row, const T* z) {
      gemm(n, n + plane_.taps - 1, r_, T(1), {g + (at - span.p0) * r_, r_}, {z, r_, true}, T(1),
           products_[int(side)].template data<T>() + tap_row * block * band_width(), band_width());
    });
  }

  void finish_gradient() override {
    const int64_t taps = plane_.taps;
    for (const Side side : both_sides) {
      T* product = products_[int(side)].template data<T>();
      T* to = gradients_[size_t(side)].template data<T>() + index_ * plane_.tap_rows * taps;
      for (int64_t row = 0; row < plane_.tap_rows; ++row)
        for (int64_t p = 0; p < taps; ++p)
          for (int64_t i = 0; i < block; ++i)
            to[row * taps + p] += product[(row * block + i) * band_width() + i + taps - 1 - p];
      std::fill_n(product, products_[int(side)].numel(), T(0));
    }
  }

 private:
  bool by_transforms(int64_t positions) const {
    return !plane_.image && transforms_are_faster(positions, plane_.taps);
  }
  int64_t band_width() const { return block + plane_.taps - 1; }

  void fill_band(Side side) {
    const int64_t taps = plane_.taps;
    const T* w = inputs_[size_t(side)].template data<T>() + index_ * plane_.tap_rows * taps;
    T* band = bands_[int(side)].template data<T>();
    for (int64_t row = 0; row < plane_.tap_rows; ++row)
      for (int64_t i = 0; i < block; ++i)
        std::reverse_copy(w + row * taps, w + (row + 1) * taps,
                          band + (row * block + i) * band_width() + i);
  }

  // Calls f(position, n, row of the filter, noise) for blocks of n positions in one row.
  template <class F>
  void each_block(SpeSpan span, F&& f) const {
    const T* z = z_.template data<T>();
    for (int64_t at = span.p0, n = 0; at < span.p1; at += n) {
      const int64_t row = plane_.image ? at / plane_.columns : 0;
      const int64_t column = at - row * plane_.columns;
      n = std::min(block, span.p1 - at);
      if (plane_.image) n = std::min(n, plane_.columns - column);
      for (int64_t p = 0; p < plane_.tap_rows; ++p) {
        const int64_t noise_row = row - window_.y0 + plane_.tap_rows - 1 - p;
        f(at, n, p, z + (noise_row * window_.nx + column - window_.x0) * r_);
      }
    }
  }

  const T* transformed_rows(Side side) {
    Tensor& code = codes_[int(side)];
    if (!code.defined()) {
      const Tensor w =
          inputs_[size_t(side)].reshape({-1, plane_.taps}).slice(0, index_, index_ + 1);
      code = valid_conv(transposed_, w).transpose(0, 1).contiguous();
    }
    return code.data<T>();
  }

  void add_transformed(Side side, SpeSpan span, const T* g) {
    const Tensor rows = empty({span.size(), r_}, {.dtype = dtype_of<T>(), .device = cpu});
    std::copy_n(g, rows.numel(), rows.data<T>());
    const int64_t at = span.p0 - span_.p0;
    const Tensor z = transposed_.slice(1, at, at + span.size() + plane_.taps - 1);
    const Tensor by_tap = sum(valid_conv(flip(z, 1), rows.transpose(0, 1)), {0});
    T* to = gradients_[size_t(side)].template data<T>() + index_ * plane_.taps;
    for (int64_t p = 0; p < plane_.taps; ++p) to[p] += by_tap.data<T>()[p];
  }

  const ConvSource& source_;
  const Plane plane_;
  const int64_t r_;
  const Tensors inputs_, gradients_;
  int64_t index_ = -1, bands_index_ = -1;  // (h, d) of the prepared rows, and of the bands
  SpeSpan span_;
  Window window_{};
  bool transformed_ = false;
  Tensor z_, rows_;
  Tensor bands_[2];     // [P1, 32, 31 + P2]
  Tensor products_[2];  // Σ dC Zᵀ, the same shape
  Tensor transposed_;   // used only with transforms: the noise [R, positions + P − 1]
  Tensor codes_[2];     // used only with transforms: [positions, R], computed on demand
};

}  // namespace

// The noise [H, D, R, ny, nx] of a window, with the dtype and device of `like`.
Tensor ConvSource::noise_in(Window w, const Tensor& like) const {
  const Shape shape{heads, d, w.ny, w.nx, realizations};
  if (like.device().is_cuda() && !given.defined()) {
    const Tensor z = empty({heads * d, realizations, w.ny, w.nx}, options_of(like));
    cuda::fill_normal_columns(z, key, draws_apart, first_draw(0, w.y0, w.x0), first_draw(0, 1, 0));
    return z.view({heads, d, realizations, w.ny, w.nx});
  }
  const Tensor z = empty(shape, {.dtype = like.dtype(), .device = cpu});
  const auto read = [&](auto* to) {
    parallel_for(heads * d, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) read_noise(i, w, to + i * w.ny * w.nx * realizations);
    });
  };
  z.dtype() == f64 ? read(z.data<double>()) : read(z.data<float>());
  return z.to(like.device()).permute({0, 1, 4, 2, 3});
}

// The filters of queries and of keys [H, D, P1, P2].
Tensors ConvSource::inputs(DType dtype) const {
  return {filter(Side::query, dtype) * scale(), filter(Side::key, dtype) * scale()};
}

Tensor ConvSource::codes(const Tensors& inputs, Side side, int64_t p0, int64_t n) const {
  if (n == 0) return zeros({heads, d, 0, realizations}, options_of(inputs[0]));
  const Window w = window({p0, p0 + n});
  const int64_t begin = plane.image ? p0 - w.y0 * plane.columns : 0;
  return fft_conv(noise_in(w, inputs[0]), inputs[size_t(side)].unsqueeze(2),
                  {.axes = 2, .padding = Padding::valid})  // eq. 22 of the paper (ops/spe/spe.h)
      .reshape({heads, d, realizations, -1})
      .slice(3, begin, begin + n)
      .transpose(2, 3);
}

Tensor ConvSource::lags(int64_t n) const {
  check(!plane.image, "spe_template", "the code is for positions in a plane of shape ",
        Shape{plane.rows, plane.columns}, "; only codes of one dimension have a template");
  // Relative position τ of the correlation is entry τ + P − 1 of a convolution.
  const int64_t taps = plane.taps, more = std::max<int64_t>(0, n - taps);
  const int64_t drop = std::max<int64_t>(0, taps - n);
  const Tensor q = filter(Side::query, own_dtype()).squeeze(2);
  const Tensor k = filter(Side::key, own_dtype()).squeeze(2);
  const Tensor all =
      fft_conv(pad(q, 2, 0, taps - 1), flip(k, 2), {.implementation = ConvForm::direct});
  return pad(all.slice(2, drop, 2 * taps - 1 - drop), 2, more, more);
}

AnySpeRows ConvSource::rows(const Tensors& in, const Tensors& gradients) const {
  return rows_of<ConvRows>(*this, in, gradients);
}

SpeCode SpeCode::conv(Tensor filter_q, Tensor filter_k, SpeNoise noise, Shape shape) {
  constexpr const char* op = "SpeCode::conv";
  const int64_t axes = std::max<int64_t>(1, shape.dim());
  check(axes <= 2, op, "shape ", shape, "; accepted: none, or two sizes {h, w}");
  check(shape.dim() != 1, op, "shape ", shape,
        "; accepted: none for a code of one dimension, or {h, w} for a code of two");
  check(filter_q.dim() == 2 + axes && filter_q.shape() == filter_k.shape(), op, "filter_q ",
        filter_q, ", filter_k ", filter_k, "; both must be ",
        axes == 1 ? "[H, D, P]" : "[H, D, P1, P2], as the shape is {h, w}");
  check(is_floating(filter_q.dtype()) && filter_q.dtype() == filter_k.dtype(), op, "filter_q ",
        filter_q, ", filter_k ", filter_k, "; both must have one floating-point dtype");
  check_same_device(op, {&filter_q, &filter_k});
  check(filter_q.numel() > 0, op, "filter_q ", filter_q, "; all sizes must be at least 1");
  const int64_t h = filter_q.size(0), d = filter_q.size(1);
  Plane plane{.taps = filter_q.size(-1), .image = axes == 2};
  if (axes == 2) {
    check(shape[0] >= 1 && shape[1] >= 1, op, "shape ", shape, "; both sizes must be at least 1");
    plane.rows = shape[0], plane.columns = shape[1], plane.tap_rows = filter_q.size(2);
  }
  int64_t realizations = noise.realizations;
  if (const Tensor& z = noise.given; z.defined()) {
    check(z.dim() == 3 + axes && z.size(0) == h && z.size(1) == d && z.size(2) >= 1, op, "noise ",
          z, "; must be [", h, ", ", d, ", R, n", axes == 1 ? "" : "1, n2", "] with R at least 1");
    realizations = z.size(2);
    const int64_t rows = axes == 1 ? 1 : z.size(3) - plane.tap_rows + 1;
    const int64_t columns = std::max<int64_t>(0, z.size(-1) - plane.taps + 1);
    if (axes == 1)
      plane.columns = columns;
    else
      check(rows >= plane.rows && columns >= plane.columns, op, "the noise ", z,
            " is enough for only ", std::max<int64_t>(0, rows), " rows of ", columns,
            " positions, but the shape is ", shape);
  } else if (axes == 1) {
    plane.columns = draws_apart / realizations - plane.taps;
  } else {
    const double draws = double(plane.rows + plane.tap_rows) * double(plane.columns + plane.taps) *
                         double(realizations);
    check(draws < double(draws_apart), op, "shape ", shape, " with R = ", realizations, " needs ",
          draws, " noise samples for each head and dimension; must be fewer than 2^40");
  }
  const int64_t n = plane.rows * plane.columns;
  return SpeCode(std::make_shared<ConvSource>(
      filter_q, filter_k, noise, plane, realizations,
      axes == 2 ? str("the code of shape ", shape, " has ", n, " positions")
                : str("the noise is enough for only ", n, " positions")));
}

}  // namespace stretto
