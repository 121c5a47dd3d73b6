// Comparisons, logical functions and selection by mask.
#include "cuda/elementwise_masks.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/formulas/elementwise_math.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/elementwise_loops.h"
#include "ops/view.h"

namespace stretto {

namespace em = elementwise;

// ---------------------------------------------------------------------------- comparisons

namespace {

template <class F>
Tensor compare_cpu(const Tensor& a, const Tensor& b, const Shape& shape) {
  if constexpr (std::is_same_v<F, em::Gt>) return compare_cpu<em::Lt>(b, a, shape);
  if constexpr (std::is_same_v<F, em::Ge>) return compare_cpu<em::Le>(b, a, shape);
  Tensor y = empty(shape, {.dtype = boolean, .device = cpu});
  binary_loop(a, b, y, dispatch(a.dtype(), []<class T>() {
                using Number = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;
                return binary_run<Number, bool, F>();
              }));
  return y;
}

template <class F>
Tensor compare_cuda(const Tensor& a, const Tensor& b, const Shape&) {
  if (is_floating(a.dtype())) return cuda::compare(F(), a, b);
  return cuda::compare(F(), a.to(i64), b.to(i64));
}

template <class F>
Tensor compare(const char* op, const Tensor& x, const Tensor& z) {
  const auto [a, b] = promoted(op, x, z);
  return on_device(a.detach(), compare_cpu<F>, compare_cuda<F>, b.detach(),
                   broadcast_shapes(op, a.shape(), b.shape()));
}

// Compares x with a number c. For an integer tensor, rounds c to an integer that compares in the
// same way with every integer: `up` (<, ≥) or down (>, ≤). For = and ≠, c is not rounded. If no i64
// has the resulting value, all elements give the same result, which is computed for an element 0.
template <class F>
Tensor compare(const char* op, const Tensor& x, double c, bool up) {
  check_defined(op, x);
  if (is_floating(x.dtype())) return compare<F>(op, x, scalar(c, options_of(x)));
  const bool equality = std::is_same_v<F, em::Eq> || std::is_same_v<F, em::Ne>;
  const double whole = equality ? c : up ? std::ceil(c) : std::floor(c);
  if (!has_value(i64, whole))
    return full(x.shape(), F::value(0.0, c), {.dtype = boolean, .device = x.device()});
  return compare<F>(op, x, scalar(whole, {.dtype = i64, .device = x.device()}));
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare<em::Eq>("eq", a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare<em::Ne>("ne", a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare<em::Lt>("lt", a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return compare<em::Le>("le", a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare<em::Gt>("gt", a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare<em::Ge>("ge", a, b); }
Tensor eq(const Tensor& a, double b) { return compare<em::Eq>("eq", a, b, true); }
Tensor ne(const Tensor& a, double b) { return compare<em::Ne>("ne", a, b, true); }
Tensor lt(const Tensor& a, double b) { return compare<em::Lt>("lt", a, b, true); }
Tensor le(const Tensor& a, double b) { return compare<em::Le>("le", a, b, false); }
Tensor gt(const Tensor& a, double b) { return compare<em::Gt>("gt", a, b, false); }
Tensor ge(const Tensor& a, double b) { return compare<em::Ge>("ge", a, b, true); }

Tensor isnan(const Tensor& x) { return ne(x, x); }
Tensor isinf(const Tensor& x) { return eq(abs(x), HUGE_VAL); }
Tensor isfinite(const Tensor& x) { return lt(abs(x), HUGE_VAL); }

// ---------------------------------------------------------------------------- masks

namespace {

void check_mask(const char* op, const Tensor& mask) {
  check_defined(op, mask, "the mask");
  check(is_mask(mask.dtype()), op, "mask is ", mask, "; accepted: bool, u8");
}

struct And {
  static bool value(bool u, bool v) { return u && v; }
};
struct Or {
  static bool value(bool u, bool v) { return u || v; }
};

// F(a, b) for two masks.
template <class F>
Tensor combine(const char* op, const Tensor& a, const Tensor& b) {
  check_mask(op, a);
  check_mask(op, b);
  check_same_device(op, {&a, &b});
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  return on_device(
      a.to(boolean),
      [&](const Tensor& u, const Tensor& v) {
        Tensor y = empty(shape, {.dtype = boolean, .device = cpu});
        binary_loop(u, v, y, binary_run<bool, bool, F>());
        return y;
      },
      [&](const Tensor& u, const Tensor& v) {
        auto constant = [&](bool value) { return scalar(value, options_of(u)); };
        return cuda::where(u, F::value(true, false) ? constant(true) : v,
                           F::value(false, true) ? v : constant(false));
      },
      b.to(boolean));
}

}  // namespace

Tensor logical_and(const Tensor& a, const Tensor& b) { return combine<And>("logical_and", a, b); }

Tensor logical_or(const Tensor& a, const Tensor& b) { return combine<Or>("logical_or", a, b); }

Tensor logical_not(const Tensor& a) {
  check_mask("logical_not", a);
  return eq(a, 0.0);
}

namespace {

Tensor where_cpu(const Tensor& any_mask, const Tensor& a, const Tensor& b, const Shape& shape) {
  const Tensor mask = any_mask.to(u8);
  Tensor y = empty(shape, options_of(a));
  const StridedLoop<4> loop(shape,
                            {y.strides(), broadcast_strides(mask.shape(), mask.strides(), shape),
                             broadcast_strides(a.shape(), a.strides(), shape),
                             broadcast_strides(b.shape(), b.strides(), shape)});
  dispatch(a.dtype(), [&]<class T>() {
    const uint8_t* m = mask.data<uint8_t>();
    const T *pa = a.data<T>(), *pb = b.data<T>();
    T* to = y.data<T>();
    const auto& s = loop.inner;
    loop.run([&](auto at, int64_t n) {
      for (int64_t i = 0; i < n; ++i)
        to[at[0] + i * s[0]] = m[at[1] + i * s[1]] ? pa[at[2] + i * s[2]] : pb[at[3] + i * s[3]];
    });
  });
  return y;
}

Tensor where_cuda(const Tensor& mask, const Tensor& a, const Tensor& b, const Shape&) {
  return cuda::where(mask, a, b);
}

}  // namespace

Tensor where(const Tensor& mask, const Tensor& x, const Tensor& z) {
  check_mask("where", mask);
  check_defined("where", x, "a");
  check_defined("where", z, "b");
  check_same_device("where", {&mask, &x, &z});
  const DType type = promote(x.dtype(), z.dtype());
  const Tensor a = x.to(type), b = z.to(type);
  const Shape shape =
      broadcast_shapes("where", broadcast_shapes("where", a.shape(), b.shape()), mask.shape());
  Tensor y = on_device(mask.detach(), where_cpu, where_cuda, a.detach(), b.detach(), shape);
  return record("where", {a, b}, y,
                [mask = Saved(mask), sa = a.shape(), sb = b.shape()](Backward& g) {
                  const Tensor zero = scalar(0, options_of(g.grad()));
                  return Tensors{g.needs(0) ? sum_to(where(mask(), g.grad(), zero), sa) : Tensor(),
                                 g.needs(1) ? sum_to(where(mask(), zero, g.grad()), sb) : Tensor()};
                });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check_mask("masked_fill", mask);
  check_defined("masked_fill", x);
  check(broadcast_shapes("masked_fill", x.shape(), mask.shape()) == x.shape(), "masked_fill",
        "mask ", mask, " is larger than ", x);
  check_value("masked_fill", x.dtype(), value);
  return where(mask, scalar(value, options_of(x)), x);
}

}  // namespace stretto
