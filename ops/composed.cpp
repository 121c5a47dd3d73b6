// Functions that are short compositions of others, declared in elementwise.h, reduce.h and
// core/tensor.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "cuda/sort.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/elementwise_loops.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

// Returns f(x, the number c as a tensor).
template <class F>
Tensor with_number(const char* op, const Tensor& x, double c, F f) {
  const Tensor a = for_scalar(op, x, c);
  return f(a, scalar(c, options_of(a)));
}

// The order of sort(): NaN counts as the largest value.
template <class T>
bool less(T a, T b) {
  return a < b || (b != b && a == a);
}

}  // namespace

Tensor maximum(const Tensor& a, double b) {
  return with_number("maximum", a, b,
                     [](const Tensor& x, const Tensor& c) { return maximum(x, c); });
}

Tensor minimum(const Tensor& a, double b) {
  return with_number("minimum", a, b,
                     [](const Tensor& x, const Tensor& c) { return minimum(x, c); });
}

Tensor where(const Tensor& mask, const Tensor& a, double b) {
  return with_number("where", a, b,
                     [&](const Tensor& x, const Tensor& c) { return where(mask, x, c); });
}

Tensor where(const Tensor& mask, double a, const Tensor& b) {
  return with_number("where", b, a,
                     [&](const Tensor& x, const Tensor& c) { return where(mask, c, x); });
}

Tensor leaky_relu(const Tensor& x, double slope) {
  check_defined("leaky_relu", x);
  return where(gt(x, 0.0), x, x * slope);
}

Tensor elu(const Tensor& x, double alpha) {
  check_defined("elu", x);
  if (is_narrow(x.dtype())) return elu(widened(x), alpha).to(x.dtype());
  return where(gt(x, 0.0), x, expm1(clamp(x, -HUGE_VAL, 0)) * alpha);
}

Tensor glu(const Tensor& x, Int d) {
  check_defined("glu", x);
  if (is_narrow(x.dtype())) return glu(widened(x), d).to(x.dtype());
  d = wrap_dim("glu", d, x.dim());
  const int64_t n = x.size(d);
  check(n % 2 == 0, "glu", "dimension ", d, " of ", x, " has an odd size");
  return x.slice(d, 0, n / 2) * sigmoid(x.slice(d, n / 2));
}

Unique unique(const Tensor& x) {
  check_defined("unique", x);
  const NoGrad guard;
  const Sorted sorted = sort(x.flatten(), 0);
  const int64_t n = x.numel();
  Tensor first = ones({n}, {.dtype = boolean, .device = x.device()});
  if (n > 1)
    first =
        cat({first.slice(0, 0, 1), ne(sorted.values.slice(0, 1), sorted.values.slice(0, 0, -1))});
  const Tensor number = cumsum(first, 0) - 1;
  return {.values = masked_select(sorted.values, first),
          .inverse = scatter(zeros_like(number), 0, sorted.indices, number).reshape(x.shape()),
          .counts = bincount(number)};
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  check_defined("searchsorted", sorted);
  check_defined("searchsorted", values);
  check(sorted.dim() == 1 && sorted.dtype() == values.dtype(), "searchsorted", "sorted ", sorted,
        ", values ", values, "; both must have one dtype, and sorted one dimension");
  check_same_device("searchsorted", {&sorted, &values});
  const DType type = is_floating(sorted.dtype()) ? sorted.dtype() : i64;
  if (sorted.device().is_cuda())
    return cuda::search_sorted(sorted.detach().to(type).contiguous(),
                               values.detach().to(type).contiguous(), right);
  const Tensor in = sorted.detach().contiguous(), x = values.detach().contiguous();
  Tensor y = empty(x.shape(), {.dtype = i64, .device = cpu});
  dispatch(in.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const std::vector<C> row(in.data<T>(), in.data<T>() + in.numel());
    for (int64_t i = 0; i < x.numel(); ++i) {
      const C value = C(x.data<T>()[i]);
      const auto at = right ? std::upper_bound(row.begin(), row.end(), value, less<C>)
                            : std::lower_bound(row.begin(), row.end(), value, less<C>);
      y.data<int64_t>()[i] = at - row.begin();
    }
  });
  return y;
}

Tensor Tensor::squeeze() const {
  Tensor y = *this;
  for (int64_t d = dim(); d-- > 0;)
    if (size(d) == 1) y = y.squeeze(d);
  return y;
}

Tensor Tensor::t() const {
  check(dim() == 2, "t", "got ", *this, "; accepted: a matrix");
  return transpose(0, 1);
}

}  // namespace stretto
