#include "ops/fft/fft.h"

#include "autograd/tape.h"
#include "cuda/fft/fft.h"
#include "ops/fft/fft_plan.h"
#include "ops/loops.h"

namespace stretto {
namespace {

// Calls body(first row, number of rows, workspace) for groups of rows that fill a vector.
template <class T, class F>
void for_row_groups(int64_t rows, int64_t room, F body) {
  const int64_t lanes = fft_lanes<T>(room);
  const int64_t groups = (rows + lanes - 1) / lanes;
  parallel_for(groups, rows_per_chunk(8 * lanes * room), [&](int64_t begin, int64_t end) {
    const FftWorkspace<T> work(2, room * lanes);
    for (int64_t g = begin; g < end; ++g) body(g * lanes, std::min(lanes, rows - g * lanes), work);
  });
}

// Pointers to consecutive rows of `width` elements.
template <class T>
struct RowPointers {
  T* at[most_fft_lanes];
  RowPointers(T* data, int64_t first, int64_t lanes, int64_t width) {
    for (int64_t l = 0; l < lanes; ++l) at[l] = data + (first + l) * width;
  }
};

template <class T>
void complex_rows(const Tensor& x, const Tensor& y, bool inverse, double scale) {
  const int64_t n = x.size(-2);
  const auto plan = FftPlan<T>::of(n);
  for_row_groups<T>(x.numel() / (2 * n), plan->room(),
                    [&](int64_t first, int64_t lanes, auto& work) {
                      const RowPointers<const T> from(x.data<T>(), first, lanes, 2 * n);
                      const RowPointers<T> to(y.data<T>(), first, lanes, 2 * n);
                      load_rows(from.at, 2 * n, true, work[0], lanes, n);
                      const Planes<T> result = inverse ? plan->inverse(work[0], work[1], lanes)
                                                       : plan->forward(work[0], work[1], lanes);
                      store_rows(result, 0, 2 * n, true, to.at, lanes, T(scale));
                    });
}

template <class T>
void real_rows(const Tensor& x, const Tensor& y, BinScale scale) {
  const int64_t n = x.size(-1);
  const auto plan = RealFftPlan<T>::of(n);
  const int64_t width = 2 * plan->bins();
  for_row_groups<T>(x.numel() / n, plan->room(), [&](int64_t first, int64_t lanes, auto& work) {
    const RowPointers<const T> from(x.data<T>(), first, lanes, n);
    const RowPointers<T> to(y.data<T>(), first, lanes, width);
    load_rows(from.at, n, plan->packed(), work[0], lanes, plan->elements());
    const Planes<T> result = plan->forward(work[0], work[1], lanes, scale);
    store_rows(result, 0, width, true, to.at, lanes);
  });
}

template <class T>
void real_inverse_rows(const Tensor& x, const Tensor& y, BinScale scale) {
  const int64_t n = y.size(-1);
  const auto plan = RealFftPlan<T>::of(n);
  const int64_t width = 2 * plan->bins();
  for_row_groups<T>(y.numel() / n, plan->room(), [&](int64_t first, int64_t lanes, auto& work) {
    const RowPointers<const T> from(x.data<T>(), first, lanes, width);
    const RowPointers<T> to(y.data<T>(), first, lanes, n);
    load_rows(from.at, width, true, work[0], lanes, plan->bins());
    const Planes<T> result = plan->inverse(work[0], work[1], lanes, scale);
    store_rows(result, 0, n, plan->packed(), to.at, lanes);
  });
}

// Computes y of `shape` by run<T>(x, y), or on CUDA by on_cuda(x, y); bf16 is computed in f32.
template <class F, class G>
Tensor computed(const Tensor& input, const Shape& shape, F run, G on_cuda) {
  const Tensor x = input.detach().to(compute_type(input.dtype())).contiguous();
  const Tensor y = empty_like(x, shape);
  if (y.numel() == 0) return y.to(input.dtype());
  if (x.device().is_cuda()) {
    on_cuda(x, y);
  } else {
    dispatch_among<double, float>(x.dtype(), [&]<class T>() { run.template operator()<T>(x, y); });
  }
  return y.to(input.dtype());
}

// scale · Σ x e^(∓2πi jk/n). As a linear map over the reals, its transpose is the transform
// with the other sign.
Tensor complex_transform(const char* op, const Tensor& x, bool inverse, double scale) {
  const Tensor y = computed(
      x, x.shape(),
      [&]<class T>(auto& from, auto& to) { complex_rows<T>(from, to, inverse, scale); },
      [=](const Tensor& from, const Tensor& to) { cuda::fft_complex(from, to, inverse, scale); });
  return record(op, {x}, y, [=](Backward& b) {
    return Tensors{complex_transform(op, b.grad(), !inverse, scale)};
  });
}

Tensor from_bins(const char* op, const Tensor& x, int64_t n, BinScale scale);

// The two maps of RealFftPlan, which are transposes of each other.
Tensor to_bins(const char* op, const Tensor& x, BinScale scale) {
  const int64_t n = x.size(-1);
  Shape shape = x.shape();
  shape.back() = n / 2 + 1;
  shape.push_back(2);
  const Tensor y = computed(
      x, shape, [&]<class T>(auto& from, auto& to) { real_rows<T>(from, to, scale); },
      [=](const Tensor& from, const Tensor& to) {
        cuda::fft_to_bins(from, to, scale.edge, scale.middle);
      });
  return record(op, {x}, y,
                [=](Backward& b) { return Tensors{from_bins(op, b.grad(), n, scale)}; });
}

Tensor from_bins(const char* op, const Tensor& x, int64_t n, BinScale scale) {
  Shape shape(x.shape().begin(), x.dim() - 1);
  shape.back() = n;
  const Tensor y = computed(
      x, shape, [&]<class T>(auto& from, auto& to) { real_inverse_rows<T>(from, to, scale); },
      [=](const Tensor& from, const Tensor& to) {
        cuda::fft_from_bins(from, to, scale.edge, scale.middle);
      });
  return record(op, {x}, y, [=](Backward& b) { return Tensors{to_bins(op, b.grad(), scale)}; });
}

void check_complex(const char* op, const Tensor& x, int64_t dims) {
  check(is_floating(x.dtype()) && x.dim() > dims && x.size(-1) == 2, op, "got ", x,
        "; accepted: complex numbers as a floating-point tensor ",
        dims == 1 ? "[.., n, 2]" : "[.., n1, m, 2]");
  for (int64_t d = 1; d <= dims; ++d)
    check(x.size(-1 - d) >= 1, op, "got ", x, ", whose length is 0; must be at least 1");
}

void check_real(const char* op, const Tensor& x, int64_t dims) {
  check(is_floating(x.dtype()) && x.dim() >= dims, op, "got ", x,
        "; accepted: a floating-point tensor ", dims == 1 ? "[.., n]" : "[.., n1, n2]");
  for (int64_t d = 1; d <= dims; ++d)
    check(x.size(-d) >= 1, op, "got ", x, ", whose length is 0; must be at least 1");
}

void check_bins(const char* op, const Tensor& x, int64_t n, int64_t dims) {
  check_complex(op, x, dims);
  check(n >= 1 && x.size(-2) == n / 2 + 1, op, "got ", x, " for n = ", n,
        "; the spectrum of n ≥ 1 real values has n/2 + 1 bins");
}

BinScale inverse_scale(int64_t n) { return {1.0 / double(n), 2.0 / double(n)}; }

}  // namespace

Tensor fft(const Tensor& x) {
  check_complex("fft", x, 1);
  return complex_transform("fft", x, false, 1);
}

Tensor ifft(const Tensor& x) {
  check_complex("ifft", x, 1);
  return complex_transform("ifft", x, true, 1.0 / double(x.size(-2)));
}

Tensor rfft(const Tensor& x) {
  check_real("rfft", x, 1);
  return to_bins("rfft", x, {});
}

Tensor irfft(const Tensor& x, Int n) {
  check_bins("irfft", x, n, 1);
  return from_bins("irfft", x, n, inverse_scale(n));
}

Tensor rfft2(const Tensor& x) {
  check_real("rfft2", x, 2);
  if (is_narrow(x.dtype())) return rfft2(x.to(f32)).to(x.dtype());
  const Tensor rows = to_bins("rfft2", x, {});
  return complex_transform("rfft2", rows.transpose(-3, -2), false, 1).transpose(-3, -2);
}

Tensor irfft2(const Tensor& x, Int n) {
  check_bins("irfft2", x, n, 2);
  if (is_narrow(x.dtype())) return irfft2(x.to(f32), n).to(x.dtype());
  const double scale = 1.0 / double(x.size(-3));
  const Tensor columns = complex_transform("irfft2", x.transpose(-3, -2), true, scale);
  return from_bins("irfft2", columns.transpose(-3, -2), n, inverse_scale(n));
}

}  // namespace stretto
