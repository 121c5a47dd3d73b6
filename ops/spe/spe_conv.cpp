// convSPE: codes that are white noise through a filter.
//
// For one head and dimension the noise is Z [positions, R], drawn again from its counters for each
// segment of positions. A block of up to 32 positions is a matrix product with the filter's band,
//
//     C = T Z,   T[i, s] = w[i + P − 1 − s]        dw[p] = Σ_i (dC Zᵀ)[i, i + P − 1 − p]
//
// with R·(P + 31) multiplications for a position and side, and as many for dw, whose product is
// summed over blocks before its diagonals are. In two dimensions there is a band for each row of
// the filter. Long filters take transforms instead (ops/fft_conv), a segment of 2P at a time.
#include <algorithm>
#include <cmath>

#include "core/blas.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/spe/spe_source.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Draws of one (head, dimension) start this far apart, so that a draw does not depend on L.
constexpr int64_t draws_apart = int64_t(1) << 40;

// Sizes along the two axes; a sequence is one row without end.
struct Plane {
  int64_t rows = 1, columns = 1;  // positions
  int64_t tap_rows = 1, taps = 1;
  bool image = false;

  int64_t noise_columns() const { return columns + taps - 1; }
};

// Where the noise of a code comes from.
struct ConvNoise {
  RandomKey key;
  int64_t d, r;
  Tensor given;  // [H, D, R, n1, n2], or undefined
  Plane plane;

  // Rows y0 …, columns x0 … of head h, dimension d as [ny, nx, R].
  template <class T>
  void read(int64_t h, int64_t at_d, int64_t y0, int64_t ny, int64_t x0, int64_t nx, T* to) const {
    if (given.defined()) {
      const Shape& s = given.strides();
      const T* from = given.data<T>() + h * s[0] + at_d * s[1] + y0 * s[3] + x0 * s[4];
      for (int64_t y = 0; y < ny; ++y)
        for (int64_t i = 0; i < r; ++i)
          for (int64_t x = 0; x < nx; ++x)
            to[(y * nx + x) * r + i] = from[i * s[2] + y * s[3] + x * s[4]];
      return;
    }
    const int64_t pitch = plane.image ? plane.noise_columns() : 0;
    const int64_t base = (h * d + at_d) * draws_apart;
    for (int64_t y = 0; y < ny; ++y)
      draw(base + ((y0 + y) * pitch + x0) * r, nx * r, to + y * nx * r);
  }

 private:
  void draw(int64_t first, int64_t n, float* to) const { normal_draws(key, first, n, to); }
  void draw(int64_t first, int64_t n, double* to) const {
    float values[256];
    for (int64_t i = 0; i < n; i += 256) {
      const int64_t count = std::min<int64_t>(256, n - i);
      normal_draws(key, first + i, count, values);
      std::copy_n(values, count, to + i);
    }
  }
};

template <class T>
class ConvRows : public SpeRows<T> {
 public:
  static constexpr int64_t block = 32;

  ConvRows(const Tensors& inputs, const Tensors& gradients, const ConvNoise& noise, int64_t segment)
      : noise_(noise), plane_(noise.plane), inputs_(inputs), gradients_(gradients) {
    if (inputs.size() == 3) noise_.given = inputs[2];
    const Options options{.dtype = dtype_of<T>()};
    const int64_t image_rows = plane_.image ? (segment - 2) / plane_.columns + 2 : 1;
    const int64_t width = plane_.image ? plane_.noise_columns() : segment + plane_.taps - 1;
    z_ = empty({image_rows + plane_.tap_rows - 1, width, noise.r}, options);
    rows_ = empty({segment, noise.r}, options);
    for (const SpeSide side : spe_sides) {
      bands_[int(side)] = zeros({plane_.tap_rows, block, band_width()}, options);
      if (!gradients.empty())
        products_[int(side)] = zeros({plane_.tap_rows, block, band_width()}, options);
    }
  }

  void prepare(int64_t h, int64_t d, int64_t p0, int64_t p1) override {
    row0_ = plane_.image ? p0 / plane_.columns : 0;
    column0_ = plane_.image ? 0 : p0;
    const int64_t image_rows = plane_.image && p1 > p0 ? (p1 - 1) / plane_.columns - row0_ + 1 : 1;
    const int64_t width = plane_.image ? plane_.noise_columns() : p1 - p0 + plane_.taps - 1;
    const bool same = index_ == h * noise_.d + d;
    T* const z = z_.template data<T>();
    // A segment after the last one has the noise of its first P − 1 columns there already.
    const int64_t known = same && !plane_.image && p0 == end_ ? plane_.taps - 1 : 0;
    std::copy_n(z + (z_width_ - known) * noise_.r, known * noise_.r, z);
    noise_.read(h, d, row0_, image_rows + plane_.tap_rows - 1, column0_ + known, width - known,
                z + known * noise_.r);
    z_width_ = width;
    end_ = p1;
    if (same) return;
    index_ = h * noise_.d + d;
    for (const SpeSide side : spe_sides) fill_band(side);
  }

  const T* rows(SpeSide side, int64_t p0, int64_t p1) override {
    T* const to = rows_.template data<T>();
    each_block(p0, p1, [&](int64_t at, int64_t n, int64_t tap_row, const T* z) {
      gemm(n, noise_.r, n + plane_.taps - 1, T(1),
           {bands_[int(side)].template data<T>() + tap_row * block * band_width(), band_width()},
           {z, noise_.r}, T(tap_row > 0), to + (at - p0) * noise_.r, noise_.r);
    });
    return to;
  }

  void add_gradient(SpeSide side, int64_t p0, int64_t p1, const T* g) override {
    each_block(p0, p1, [&](int64_t at, int64_t n, int64_t tap_row, const T* z) {
      gemm(n, n + plane_.taps - 1, noise_.r, T(1), {g + (at - p0) * noise_.r, noise_.r},
           {z, noise_.r, true}, T(1),
           products_[int(side)].template data<T>() + tap_row * block * band_width(), band_width());
    });
  }

  void finish_gradient() override {
    const int64_t taps = plane_.taps;
    for (const SpeSide side : spe_sides) {
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
  int64_t band_width() const { return block + plane_.taps - 1; }

  void fill_band(SpeSide side) {
    const int64_t taps = plane_.taps;
    const T* w = inputs_[size_t(side)].template data<T>() + index_ * plane_.tap_rows * taps;
    T* band = bands_[int(side)].template data<T>();
    for (int64_t row = 0; row < plane_.tap_rows; ++row)
      for (int64_t i = 0; i < block; ++i)
        std::reverse_copy(w + row * taps, w + (row + 1) * taps,
                          band + (row * block + i) * band_width() + i);
  }

  // f(position, n, row of the filter, noise) for blocks of n positions in one row.
  template <class F>
  void each_block(int64_t p0, int64_t p1, F&& f) const {
    const T* z = z_.template data<T>();
    for (int64_t at = p0, n = 0; at < p1; at += n) {
      const int64_t row = plane_.image ? at / plane_.columns : 0;
      const int64_t column = at - row * plane_.columns;
      n = std::min(block, p1 - at);
      if (plane_.image) n = std::min(n, plane_.columns - column);
      for (int64_t p = 0; p < plane_.tap_rows; ++p)
        f(at, n, p,
          z + ((row - row0_ + plane_.tap_rows - 1 - p) * z_width_ + column - column0_) * noise_.r);
    }
  }

  ConvNoise noise_;
  const Plane plane_;
  const Tensors inputs_, gradients_;
  int64_t index_ = -1, row0_ = 0, column0_ = 0, z_width_ = 0, end_ = -1;
  Tensor z_, rows_;
  Tensor bands_[2];     // [P1, 32, 31 + P2]
  Tensor products_[2];  // Σ dC Zᵀ, the same
};

// The same by transforms of a whole segment. One dimension.
template <class T>
class FftConvRows : public SpeRows<T> {
 public:
  FftConvRows(const Tensors& inputs, const Tensors& gradients, const ConvNoise& noise)
      : noise_(noise), taps_(noise.plane.taps), inputs_(inputs), gradients_(gradients) {
    if (inputs.size() == 3) noise_.given = inputs[2];
  }

  void prepare(int64_t h, int64_t d, int64_t p0, int64_t p1) override {
    index_ = h * noise_.d + d;
    p0_ = p0;
    const Tensor z = empty({p1 - p0 + taps_ - 1, noise_.r}, {.dtype = dtype_of<T>()});
    noise_.read(h, d, 0, 1, p0, z.size(0), z.data<T>());
    z_ = z.transpose(0, 1).contiguous();
    for (Tensor& code : codes_) code = {};
  }

  const T* rows(SpeSide side, int64_t p0, int64_t) override {
    Tensor& code = codes_[int(side)];
    if (!code.defined()) {
      const Tensor w = inputs_[size_t(side)].reshape({-1, taps_}).slice(0, index_, index_ + 1);
      code = valid(z_, w).transpose(0, 1).contiguous();
    }
    return code.data<T>() + (p0 - p0_) * noise_.r;
  }

  void add_gradient(SpeSide side, int64_t p0, int64_t p1, const T* g) override {
    const Tensor rows = empty({p1 - p0, noise_.r}, {.dtype = dtype_of<T>()});
    std::copy_n(g, rows.numel(), rows.data<T>());
    const Tensor z = z_.slice(1, p0 - p0_, p1 - p0_ + taps_ - 1);
    const Tensor by_tap = sum(valid(flip(z, 1), rows.transpose(0, 1)), {0});
    T* to = gradients_[size_t(side)].template data<T>() + index_ * taps_;
    for (int64_t p = 0; p < taps_; ++p) to[p] += by_tap.data<T>()[p];
  }

  void finish_gradient() override {}

 private:
  static Tensor valid(const Tensor& x, const Tensor& w) {
    return fft_conv(x, w, {.padding = Padding::valid, .form = ConvForm::fft});
  }

  ConvNoise noise_;
  const int64_t taps_;
  const Tensors inputs_, gradients_;
  int64_t index_ = 0, p0_ = 0;
  Tensor z_;         // [R, positions + P − 1]
  Tensor codes_[2];  // [positions, R], when they have been asked for
};

// What a transform costs for each number that goes in, in multiplications of the direct form.
// Measured with segments of 2P: at P = 256 both need the same time.
constexpr int64_t transform_cost = 190;
bool transforms_are_faster(int64_t positions, int64_t taps) {
  return positions * (taps + 31) > transform_cost * (positions + taps - 1);
}

// Each segment by what is faster for it.
template <class T>
class LongConvRows : public SpeRows<T> {
 public:
  LongConvRows(const Tensors& inputs, const Tensors& gradients, const ConvNoise& noise,
               int64_t segment)
      : taps_(noise.plane.taps),
        fft_(inputs, gradients, noise),
        direct_(inputs, gradients, noise, most_directly(segment, taps_)) {}

  void prepare(int64_t h, int64_t d, int64_t p0, int64_t p1) override {
    const bool fft = transforms_are_faster(p1 - p0, taps_);
    used_directly_ = used_directly_ || !fft;
    current_ = fft ? static_cast<SpeRows<T>*>(&fft_) : &direct_;
    current_->prepare(h, d, p0, p1);
  }
  const T* rows(SpeSide side, int64_t p0, int64_t p1) override {
    return current_->rows(side, p0, p1);
  }
  void add_gradient(SpeSide side, int64_t p0, int64_t p1, const T* g) override {
    current_->add_gradient(side, p0, p1, g);
  }
  void finish_gradient() override {
    if (used_directly_) direct_.finish_gradient();
    used_directly_ = false;
  }

 private:
  static int64_t most_directly(int64_t segment, int64_t taps) {
    while (segment > 1 && transforms_are_faster(segment, taps)) --segment;
    return segment;
  }

  const int64_t taps_;
  FftConvRows<T> fft_;
  ConvRows<T> direct_;
  SpeRows<T>* current_ = nullptr;
  bool used_directly_ = false;  // since the last gradient was finished
};

class ConvSource : public SpeSource {
 public:
  ConvSource(Tensor filter_q, Tensor filter_k, const Shape& shape, ConvNoise noise)
      : SpeSource(filter_q.size(0), filter_q.size(1), noise.r),
        filters_{std::move(filter_q), std::move(filter_k)},
        shape_(shape),
        noise_(std::move(noise)) {}

  const Tensor& parameter() const override { return filters_[0]; }

  void check_reach(const char* op, int64_t end) const override {
    if (plane().image)
      check(end <= plane().rows * plane().columns, op, "the code of shape ", shape_, " has ",
            plane().rows * plane().columns, " positions, the call needs ", end);
    else
      check(end <= noise_.plane.columns, op, "the noise reaches ", noise_.plane.columns,
            " positions, the call needs ", end);
  }

  Tensor codes(SpeSide side, int64_t p0, int64_t n, DType dtype) const override {
    const Tensor w = filter(side, dtype);
    if (n == 0) return zeros({heads, d, 0, realizations}, options_of(w));
    const int64_t row0 = plane().image ? p0 / plane().columns : 0;
    const int64_t rows = plane().image ? (p0 + n - 1) / plane().columns - row0 + 1 : 1;
    const int64_t column0 = plane().image ? 0 : p0;
    const int64_t columns = plane().image ? plane().columns : n;
    const Tensor z =
        noise(row0, rows + plane().tap_rows - 1, column0, columns + plane().taps - 1, dtype);
    const int64_t begin = p0 - row0 * plane().columns - column0;
    return fft_conv(z, w.unsqueeze(2), {.axes = 2, .padding = Padding::valid})  // (22)
        .reshape({heads, d, realizations, rows * columns})
        .slice(3, plane().image ? begin : 0, (plane().image ? begin : 0) + n)
        .transpose(2, 3);
  }

  Tensor lags(int64_t n) const override {
    check(!plane().image, "spe_template", "the code has shape ", shape_,
          "; only codes of one dimension have a template over lags");
    const DType dtype = own_dtype();
    // Lag τ of the correlation is entry τ + P − 1 of a convolution.
    const int64_t taps = plane().taps, more = std::max<int64_t>(0, n - taps);
    auto sequence = [&](SpeSide side) {
      return filters_[int(side)].to(dtype).reshape({heads, d, taps});
    };
    const Tensor q = pad(sequence(SpeSide::query), 2, 0, taps - 1);
    const Tensor all = fft_conv(q, flip(sequence(SpeSide::key), 2), {.form = ConvForm::direct});
    const int64_t drop = std::max<int64_t>(0, taps - n);
    return pad(all.slice(2, drop, 2 * taps - 1 - drop), 2, more, more);
  }

  Tensors inputs(DType dtype) const override {
    Tensors all = {filter(SpeSide::query, dtype), filter(SpeSide::key, dtype)};
    if (noise_.given.defined()) all.push_back(noise_.given.to(dtype));
    return all;
  }

  int64_t segment() const override { return std::max<int64_t>(256, 2 * plane().taps); }
  int64_t dims() const override { return 4; }
  std::unique_ptr<SpeRows<float>> rows_f32(const Tensors& inputs,
                                           const Tensors& gradients) const override {
    return rows_of<float>(inputs, gradients);
  }
  std::unique_ptr<SpeRows<double>> rows_f64(const Tensors& inputs,
                                            const Tensors& gradients) const override {
    return rows_of<double>(inputs, gradients);
  }

 private:
  template <class T>
  std::unique_ptr<SpeRows<T>> rows_of(const Tensors& inputs, const Tensors& gradients) const {
    if (!plane().image && transforms_are_faster(segment(), plane().taps))
      return std::make_unique<LongConvRows<T>>(inputs, gradients, noise_, segment());
    return std::make_unique<ConvRows<T>>(inputs, gradients, noise_, segment());
  }
  const Plane& plane() const { return noise_.plane; }
  // [H, D, P1, P2].
  Tensor filter(SpeSide side, DType dtype) const {
    return filters_[int(side)].to(dtype).reshape({heads, d, plane().tap_rows, plane().taps}) *
           scale();
  }
  // [H, D, R, ny, nx].
  Tensor noise(int64_t y0, int64_t ny, int64_t x0, int64_t nx, DType dtype) const {
    if (noise_.given.defined())
      return noise_.given.to(filters_[0].device())
          .to(dtype)
          .slice(3, y0, y0 + ny)
          .slice(4, x0, x0 + nx);
    const Tensor z = empty({heads, d, ny, nx, realizations}, {.dtype = dtype});
    parallel_for(heads * d, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        auto read = [&](auto* to) {
          noise_.read(i / d, i % d, y0, ny, x0, nx, to + i * ny * nx * realizations);
        };
        dtype == f64 ? read(z.data<double>()) : read(z.data<float>());
      }
    });
    return z.to(filters_[0].device()).permute({0, 1, 4, 2, 3});
  }

  Tensor filters_[2];
  Shape shape_;
  ConvNoise noise_;
};

}  // namespace

SpeCode SpeCode::conv(Tensor filter_q, Tensor filter_k, SpeNoise noise, Shape shape) {
  constexpr const char* op = "SpeCode::conv";
  const int64_t axes = std::max<int64_t>(1, shape.dim());
  check(axes <= 2, op, "shape ", shape, "; accepted: none, or two sizes {h, w}");
  check(shape.dim() != 1, op, "shape ", shape,
        "; a code of one dimension takes none, as long as its noise; one of two takes {h, w}");
  check(filter_q.dim() == 2 + axes && filter_q.shape() == filter_k.shape(), op, "filter_q ",
        filter_q, ", filter_k ", filter_k, "; both must be ",
        axes == 1 ? "[H, D, P]" : "[H, D, P1, P2], as the shape is {h, w}");
  check(is_floating(filter_q.dtype()) && filter_q.dtype() == filter_k.dtype(), op, "filter_q ",
        filter_q, ", filter_k ", filter_k, "; both must have one floating dtype");
  check_same_device(op, {&filter_q, &filter_k});
  check(filter_q.numel() > 0, op, "filter_q ", filter_q, "; no size of it may be 0");
  const int64_t h = filter_q.size(0), d = filter_q.size(1);
  Plane plane{.taps = filter_q.size(-1), .image = axes == 2};
  if (axes == 2) {
    check(shape[0] >= 1 && shape[1] >= 1, op, "shape ", shape, "; both sizes must be at least 1");
    plane.rows = shape[0], plane.columns = shape[1], plane.tap_rows = filter_q.size(2);
  }
  ConvNoise source{
      .key = noise.key(), .d = d, .r = noise.realizations(), .given = {}, .plane = plane};
  if (const Tensor& z = noise.given(); z.defined()) {
    check(z.dim() == 3 + axes && z.size(0) == h && z.size(1) == d && z.size(2) >= 1, op, "noise ",
          z, "; must be [", h, ", ", d, ", R, n", axes == 1 ? "" : "1, n2", "] with R at least 1");
    source.r = z.size(2);
    source.given = axes == 1 ? z.unsqueeze(3) : z;
    const int64_t rows = axes == 1 ? 1 : z.size(3) - plane.tap_rows + 1;
    const int64_t columns = std::max<int64_t>(0, z.size(-1) - plane.taps + 1);
    if (axes == 1)
      source.plane.columns = columns;
    else
      check(rows >= plane.rows && columns >= plane.columns, op, "the noise ", z, " reaches ",
            std::max<int64_t>(0, rows), " rows of ", columns, " positions, the shape is ", shape);
  } else if (axes == 1) {
    source.plane.columns = draws_apart / noise.realizations() - plane.taps;
  } else {
    const double draws = double(plane.rows + plane.tap_rows) * double(plane.columns + plane.taps) *
                         double(noise.realizations());
    check(draws < double(draws_apart), op, "shape ", shape, " with R = ", noise.realizations(),
          " takes more draws than the 2^40 that a dimension has");
  }
  return SpeAccess::make(std::make_shared<ConvSource>(std::move(filter_q), std::move(filter_k),
                                                      shape, std::move(source)));
}

}  // namespace stretto
