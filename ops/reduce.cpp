#include "ops/reduce.h"

#include <algorithm>
#include <limits>

#include "autograd/tape.h"
#include "cuda/reduce.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/rows.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace stretto {
namespace {

/// The types of sums and of their results. Summing f32 in f64 is still limited by memory bandwidth.
template <class T>
using sum_t = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
template <class T>
using sum_result_t = std::conditional_t<std::is_integral_v<T>, int64_t, T>;

/// The dimensions of a reduction, and the shape of its result with and without them.
struct ReductionPlan {
  Shape sorted, kept, dropped;
  bool reduced[Shape::max_dims] = {};
  int64_t count = 1;  // elements per result

  ReductionPlan(const char* op, const Tensor& x, const Dims& dims) {
    check_defined(op, x);
    kept = x.shape();
    for (int64_t d : dims) {
      const int64_t at = wrap_dim(op, d, x.dim());
      check(!reduced[at], op, "dimensions ", dims, " name dimension ", at, " twice");
      reduced[at] = true;
    }
    for (int64_t d = 0; d < x.dim(); ++d) {
      if (dims.empty()) reduced[d] = true;
      if (!reduced[d]) {
        dropped.push_back(x.shape()[d]);
        continue;
      }
      sorted.push_back(d);
      kept[d] = 1;
      count *= x.shape()[d];
    }
  }
};

// y[r] = Σ x[r, :] for `rows` rows of n elements.
template <class T, class A>
STRETTO_CLONES void sum_rows(const T* x, A* y, int64_t rows, int64_t n) {
  if (n < rows::lanes) {
    for (int64_t r = 0; r < rows; ++r) {
      y[r] = 0;
      for (int64_t i = 0; i < n; ++i) y[r] = math::wrapping_add(y[r], A(x[r * n + i]));
    }
    return;
  }
  using Sum = std::conditional_t<std::is_integral_v<A>, uint64_t, A>;  // may wrap around
  for (int64_t r = 0; r < rows; ++r)
    y[r] = A(rows::sum<Sum>(n, [row = x + r * n](int64_t i) { return Sum(A(row[i])); }));
}

// y[:width] = Σ x[i·stride + :width] over n rows.
template <class T, class A>
STRETTO_CLONES void sum_columns(const T* x, A* y, int64_t n, int64_t stride, int64_t width) {
  using math::wrapping_add;
  std::fill_n(y, width, A(0));
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const T *a = x + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
    for (int64_t j = 0; j < width; ++j)
      y[j] = wrapping_add(
          y[j], wrapping_add(wrapping_add(A(a[j]), A(b[j])), wrapping_add(A(c[j]), A(d[j]))));
  }
  for (; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) y[j] = wrapping_add(y[j], A(x[i * stride + j]));
}

// Sums x [outer, n, inner] → y [outer, inner]. Each tile of the input is summed by one thread; if n
// is split into chunks, their sums are summed in the same way.
template <class T, class A>
void sum_middle(const T* x, A* y, int64_t outer, int64_t n, int64_t inner) {
  if (outer * inner == 0) return;
  constexpr int64_t tile_size = 32768;
  const int64_t width = std::min<int64_t>(inner, 512), tiles = (inner + width - 1) / width;
  const int64_t height = std::min(n, tile_size / width);
  const int64_t chunks = n == 0 ? 1 : (n + height - 1) / height;
  const int64_t grain = std::max<int64_t>(1, tile_size / std::max<int64_t>(1, height * width));
  if (inner == 1 && chunks == 1) {
    parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      sum_rows(x + begin * n, y + begin, end - begin, n);
    });
    return;
  }
  const Tensor partial =
      chunks == 1 ? Tensor()
                  : empty({outer, chunks, inner}, {.dtype = dtype_of<A>(), .device = cpu});
  A* sums = chunks == 1 ? y : partial.data<A>();
  parallel_for(outer * chunks * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % tiles * width, r = i / tiles, o = r / chunks, c = r % chunks;
      const int64_t rows = std::min(height, n - c * height);
      const T* from = x + (o * n + c * height) * inner + column;
      A* to = sums + r * inner + column;
      if (inner == 1) {
        sum_rows(from, to, 1, rows);
      } else {
        sum_columns(from, to, rows, inner, std::min(width, inner - column));
      }
    }
  });
  if (chunks > 1) sum_middle(sums, y, outer, chunks, inner);
}

// Returns scale · Σ x over the reduced dimensions. Adjacent reduced dimensions are summed together,
// from the right; the result is rounded to its dtype once, at the end.
template <class T>
Tensor sum_row_major(const Tensor& x, const ReductionPlan& plan, double scale) {
  using A = sum_t<T>;
  using R = sum_result_t<T>;
  Tensor sums;
  int64_t inner = 1;
  const auto pass = [&](int64_t outer, int64_t n) {
    const Tensor y = empty({outer, inner}, {.dtype = dtype_of<A>(), .device = cpu});
    if (sums.defined()) {
      sum_middle(sums.data<A>(), y.data<A>(), outer, n, inner);
    } else {
      sum_middle(x.data<T>(), y.data<A>(), outer, n, inner);
    }
    sums = y;
  };
  for (int64_t d = x.dim() - 1; d >= 0;) {
    if (!plan.reduced[d]) {
      inner *= x.shape()[d--];
      continue;
    }
    int64_t n = 1, outer = 1;
    for (; d >= 0 && plan.reduced[d]; --d) n *= x.shape()[d];
    for (int64_t e = 0; e <= d; ++e) outer *= x.shape()[e];
    pass(outer, n);
  }
  if (!sums.defined()) pass(1, 1);  // 0-d
  Tensor y = empty(plan.kept, {.dtype = dtype_of<R>(), .device = cpu});
  const A* from = sums.data<A>();
  R* to = y.data<R>();
  parallel_for(y.numel(), 32768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = std::is_integral_v<T> ? R(from[i]) : R(double(from[i]) * scale);
  });
  return y;
}

Tensor sum_cpu(const Tensor& x, const ReductionPlan& plan, double scale) {
  const Tensor row_major = x.contiguous();
  return dispatch(x.dtype(), [&]<class T>() { return sum_row_major<T>(row_major, plan, scale); });
}

Tensor sum_cuda(const Tensor& x, const ReductionPlan& plan, double scale) {
  const Tensor y = cuda::sum(is_floating(x.dtype()) ? x : x.to(i64), plan.sorted, true);
  return scale == 1 ? y : y * scale;
}

Tensor scaled_sum(const char* op, const Tensor& x, const Dims& dims, bool keepdim, bool average) {
  const ReductionPlan plan(op, x, dims);
  const double scale = average ? 1.0 / double(plan.count) : 1.0;
  Tensor y = on_device(x.detach(), sum_cpu, sum_cuda, plan, scale);
  if (!keepdim) y = y.view(plan.dropped);
  return record(op, {x}, y, [kept = plan.kept, shape = x.shape(), scale](Backward& b) {
    const Tensor g = b.grad().reshape(kept);
    return Tensors{(scale == 1 ? g : g * scale).expand(shape)};
  });
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return scaled_sum("sum", x, dims, keepdim, false);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  check_floating("mean", x);
  return scaled_sum("mean", x, dims, keepdim, true);
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  check_floating("var", x);
  if (is_narrow(x.dtype())) return var(x.to(f32), dims, correction, keepdim).to(x.dtype());
  const double n = double(ReductionPlan("var", x, dims).count);
  // The mean is rounded. If x is far from 0 and varies little, x − mean therefore has a nonzero
  // mean, which is subtracted too.
  const Tensor near = x - mean(x.detach(), dims, true);
  const Tensor deviation = near - mean(near, dims, true);
  return sum(deviation * deviation, dims, keepdim) * (1.0 / std::max(0.0, n - correction));
}

namespace {

// Returns x detached and row-major, with dimension d moved to the end.
Tensor with_last(const Tensor& x, int64_t d) {
  Shape order;
  for (int64_t i = 0; i < x.dim(); ++i)
    if (i != d) order.push_back(i);
  order.push_back(d);
  return x.detach().permute(order).contiguous();
}

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return x != x;
}

// The index of the first largest (smallest) element of a row, or of the first NaN.
template <bool largest, class T>
int64_t extreme_index(const T* x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 0; i < n && !is_nan(x[best]); ++i)
    if ((largest ? x[i] > x[best] : x[i] < x[best]) || is_nan(x[i])) best = i;
  return best;
}

struct Extremes {
  Tensor values, indices;  // d kept with size 1
  int64_t d;
};

template <bool largest>
void extremes_cpu(const Tensor& x, const Extremes& result) {
  const int64_t n = x.size(-1);
  dispatch(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* values = result.values.template data<T>();
    int64_t* indices = result.indices.template data<int64_t>();
    parallel_for(result.values.numel(), rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        indices[r] = extreme_index<largest>(from + r * n, n);
        values[r] = from[r * n + indices[r]];
      }
    });
  });
}

template <bool largest>
void extremes_cuda(const Tensor& x, const Extremes& result) {
  const DType type = is_floating(x.dtype()) ? x.dtype() : i64;
  const Tensor values = type == x.dtype()
                            ? result.values
                            : empty(result.values.shape(), {.dtype = type, .device = x.device()});
  cuda::extremes(x.to(type), largest, values, result.indices);
  if (type != x.dtype()) result.values.copy_(values);
}

template <bool largest>
Extremes extremes(const char* op, const Tensor& x, int64_t d) {
  check_defined(op, x);
  d = wrap_dim(op, d, x.dim());
  const int64_t n = x.shape()[d];
  check(n > 0, op, "dimension ", d, " of ", x, " is empty: it has no ",
        largest ? "largest" : "smallest", " element");
  Shape kept = x.shape();
  kept[d] = 1;
  Extremes result{empty_like(x, kept), empty(kept, {.dtype = i64, .device = x.device()}), d};
  on_device(with_last(x, d), extremes_cpu<largest>, extremes_cuda<largest>, result);
  return result;
}

template <bool largest>
Tensor extreme(const char* op, const Tensor& x, int64_t d, bool keepdim) {
  const Extremes e = extremes<largest>(op, x, d);
  const auto backward = [indices = Saved(e.indices), d = e.d, shape = x.shape()](Backward& b) {
    const Tensor g = b.grad().reshape(indices().shape());
    return Tensors{scatter_add(zeros(shape, options_of(g)), d, indices(), g)};
  };
  return record(op, {x}, keepdim ? e.values : e.values.squeeze(e.d), backward);
}

template <bool largest>
Tensor extreme_of_all(const char* op, const Tensor& x) {
  check(x.defined() && x.numel() > 0, op, x, " is empty: it has no ",
        largest ? "largest" : "smallest", " element");
  return extreme<largest>(op, x.reshape({-1}), 0, false);
}

// Cumulative sums of `width` columns of n elements, with row stride `stride`.
template <class T, class R>
STRETTO_CLONES void cumsum_columns(const T* x, R* y, int64_t n, int64_t stride, int64_t width) {
  using A = sum_t<T>;
  if (width == 1) {
    A sum = 0;
    for (int64_t i = 0; i < n; ++i)
      y[i * stride] = R(sum = math::wrapping_add(sum, A(x[i * stride])));
    return;
  }
  A sums[512] = {};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j)
      y[i * stride + j] = R(sums[j] = math::wrapping_add(sums[j], A(x[i * stride + j])));
}

Tensor cumsum_cpu(const Tensor& x, int64_t d) {
  const int64_t n = x.shape()[d];
  int64_t outer = 1, inner = 1;
  for (int64_t e = 0; e < d; ++e) outer *= x.shape()[e];
  for (int64_t e = d + 1; e < x.dim(); ++e) inner *= x.shape()[e];
  return dispatch(x.dtype(), [&]<class T>() {
    using R = sum_result_t<T>;
    Tensor sums = empty(x.shape(), {.dtype = dtype_of<R>(), .device = cpu});
    const int64_t width = std::clamp<int64_t>(inner, 1, 512), tiles = (inner + width - 1) / width;
    parallel_for(outer * tiles, rows_per_chunk(n * width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = i % tiles * width, at = i / tiles * n * inner + column;
        cumsum_columns(x.data<T>() + at, sums.data<R>() + at, n, inner,
                       std::min(width, inner - column));
      }
    });
    return sums;
  });
}

Tensor cumsum_cuda(const Tensor& x, int64_t d) {
  return cuda::cumsum(is_floating(x.dtype()) ? x : x.to(i64), d);
}

// log Σ exp of each row. The maximum is subtracted if it is finite. Otherwise the sum is 0,
// infinite or NaN, and its logarithm is the result.
template <class T>
STRETTO_CLONES void logsumexp_rows(const T* x, T* y, int64_t rows, int64_t n) {
  using C = compute_t<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * n;
    const C top = rows::max<C>(n, [&](int64_t i) { return C(row[i]); });
    const C shift = math::abs(top) < std::numeric_limits<C>::infinity() ? top : C(0);
    const double total =
        rows::sum<double>(n, [&](int64_t i) { return double(math::exp(C(row[i]) - shift)); });
    y[r] = T(shift + math::log(C(total)));
  }
}

void logsumexp_cpu(const Tensor& x, const Tensor& y) {
  const int64_t n = x.size(-1);
  dispatch_floating(x.dtype(), "logsumexp", [&]<class T>() {
    parallel_for(y.numel(), rows_per_chunk(n), [&](int64_t begin, int64_t end) {
      logsumexp_rows(x.data<T>() + begin * n, y.data<T>() + begin, end - begin, n);
    });
  });
}

void logsumexp_cuda(const Tensor& x, const Tensor& y) { cuda::logsumexp(x, y); }

}  // namespace

Tensor max(const Tensor& x, Int d, bool keepdim) { return extreme<true>("max", x, d, keepdim); }
Tensor min(const Tensor& x, Int d, bool keepdim) { return extreme<false>("min", x, d, keepdim); }
Tensor max(const Tensor& x) { return extreme_of_all<true>("max", x); }
Tensor min(const Tensor& x) { return extreme_of_all<false>("min", x); }

namespace {

template <bool largest>
Tensor extreme_place(const char* op, const Tensor& x, int64_t d, bool keepdim) {
  const Extremes e = extremes<largest>(op, x, d);
  return keepdim ? e.indices : e.indices.squeeze(e.d);
}

Tensor row_of_all(const char* op, const Tensor& x) {
  check(x.numel() > 0, op, x, " is empty");
  return x.detach().reshape({-1});
}

}  // namespace

Tensor argmax(const Tensor& x, Int d, bool keepdim) {
  return extreme_place<true>("argmax", x, d, keepdim);
}
Tensor argmin(const Tensor& x, Int d, bool keepdim) {
  return extreme_place<false>("argmin", x, d, keepdim);
}
Tensor argmax(const Tensor& x) { return argmax(row_of_all("argmax", x), 0); }
Tensor argmin(const Tensor& x) { return argmin(row_of_all("argmin", x), 0); }

Tensor cumsum(const Tensor& x, Int d) {
  d = wrap_dim("cumsum", d, x.dim());
  Tensor y = on_device(x.detach().contiguous(), cumsum_cpu, cumsum_cuda, d);
  return record("cumsum", {x}, y,
                [d](Backward& b) { return Tensors{flip(cumsum(flip(b.grad(), d), d), d)}; });
}

Tensor logsumexp(const Tensor& x, Int d, bool keepdim) {
  check_floating("logsumexp", x);
  d = wrap_dim("logsumexp", d, x.dim());
  Shape kept = x.shape(), dropped = x.shape();
  kept[d] = 1;
  dropped.erase(d);
  Tensor y = empty_like(x, keepdim ? kept : dropped);
  on_device(with_last(x, d), logsumexp_cpu, logsumexp_cuda, y);
  return record("logsumexp", {x}, y, [x = Saved(x), d, kept](Backward& b) {
    return Tensors{b.grad().reshape(kept) * softmax(x(), d)};
  });
}

// ---------------------------------------------------------------------------- comparisons

namespace {

bool all_true(const Tensor& mask) { return sum(mask).item<int64_t>() == mask.numel(); }

}  // namespace

bool equal(const Tensor& a, const Tensor& b) {
  check_same_device("equal", {&a, &b});
  return a.shape() == b.shape() && a.dtype() == b.dtype() && all_true(eq(a, b));
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  check(rtol >= 0 && atol >= 0, "allclose", "rtol ", rtol, ", atol ", atol, "; cannot be negative");
  const Tensor x = a.detach().to(f64), y = b.detach().to(f64), difference = abs(x - y);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor close = logical_or(
      eq(x, y), logical_and(le(difference, atol + rtol * abs(y)), lt(difference, infinity)));
  if (equal_nan) close = logical_or(close, logical_and(ne(x, x), ne(y, y)));
  return all_true(close);
}

}  // namespace stretto
