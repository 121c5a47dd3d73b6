// Reductions and scans that are composed of other ops (ops/reduce.h). Products and logarithms of
// sums are computed in a tree of pairs: the depth is log₂ n, and the gradient needs no division.
#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

// The reduced dimensions in ascending order: all if none are given.
Shape reduced_dimensions(const char* op, const Tensor& x, const Dims& dims) {
  Shape sorted;
  for (int64_t d : dims) sorted.push_back(wrap_dim(op, d, x.dim()));
  std::sort(sorted.begin(), sorted.end());
  const auto* twice = std::adjacent_find(sorted.begin(), sorted.end());
  check(twice == sorted.end(), op, "dimensions ", dims, " name a dimension twice");
  if (dims.empty())
    for (int64_t d = 0; d < x.dim(); ++d) sorted.push_back(d);
  return sorted;
}

Tensor without(Tensor y, const Shape& dims, bool keepdim) {
  for (int64_t i = dims.dim(); i-- > 0 && !keepdim;) y = y.squeeze(dims[i]);
  return y;
}

// Returns xᵖ for 0 < p < 1, with gradient 0 at 0, where its slope is infinite.
Tensor root(const Tensor& x, double p) {
  const auto power = [p](const Tensor& v) { return p == 0.5 ? sqrt(v) : pow(v, p); };
  if (!x.requires_grad()) return power(x);
  const Tensor none = eq(x, 0), safe = where(none, scalar(1, options_of(x)), x);
  return where(none, scalar(0, options_of(x)), power(safe));
}

Tensor as_number(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(i64); }

}  // namespace

Tensor std(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  check_floating("std", x);
  reduced_dimensions("std", x, dims);
  if (is_narrow(x.dtype())) return std(x.to(f32), dims, correction, keepdim).to(x.dtype());
  return root(var(x, dims, correction, keepdim), 0.5);
}

Tensor norm(const Tensor& x, double p, const Dims& given, bool keepdim) {
  check_floating("norm", x);
  check(p > 0, "norm", "p = ", p, "; accepted: greater than 0");
  const Shape dims = reduced_dimensions("norm", x, given);
  if (is_narrow(x.dtype())) return norm(widened(x), p, dims, keepdim).to(x.dtype());
  if (std::isinf(p)) {
    Tensor y = abs(x);
    for (int64_t d : dims) y = max(y, d, true);
    return without(y, dims, keepdim);
  }
  if (dims.empty()) return abs(x);
  if (p == 1) return sum(abs(x), dims, keepdim);
  const Tensor powers = p == 2 ? square(x) : p < 1 ? root(abs(x), p) : pow(abs(x), p);
  const Tensor total = sum(powers, dims, keepdim);
  return p < 1 ? pow(total, 1 / p) : root(total, 1 / p);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  reduced_dimensions("any", x, dims);
  return gt(sum(ne(x.detach(), 0), dims, keepdim), 0);
}

Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  reduced_dimensions("all", x, dims);
  return eq(sum(eq(x.detach(), 0), dims, keepdim), 0);
}

Tensor prod(const Tensor& x, const Dims& given, bool keepdim) {
  const Shape dims = reduced_dimensions("prod", x, given);
  if (is_narrow(x.dtype())) return prod(x.to(f32), given, keepdim).to(x.dtype());
  Tensor y = as_number(x);
  for (int64_t d : dims) {
    if (y.shape()[d] == 0) y = sum(y, {d}, true) + 1.0;
    for (int64_t n; (n = y.shape()[d]) > 1;) {
      const int64_t half = n / 2;
      const Tensor pairs = y.slice(d, 0, half) * y.slice(d, half, 2 * half);
      y = n % 2 == 0 ? pairs : cat({pairs, y.slice(d, n - 1)}, d);
    }
  }
  return without(y, dims, keepdim);
}

namespace {

// y[:, i] = x[:, 0] ∘ … ∘ x[:, i] for an associative operation, x [outer, n, inner]. The results at
// odd positions are the scan of the pairs.
template <class F>
Tensor scan(const Tensor& x, F combine) {
  const int64_t n = x.size(1), half = n / 2;
  if (n <= 1) return x;
  const Tensor even = x.slice(1, 0, n, 2), odd = x.slice(1, 1, n, 2);
  const Tensor at_odd = scan(combine(even.slice(1, 0, half), odd), combine);
  const Tensor later = combine(at_odd.slice(1, 0, even.size(1) - 1), even.slice(1, 1));
  const Tensor at_even = cat({even.slice(1, 0, 1), later}, 1);
  const Tensor mixed = stack({at_even.slice(1, 0, half), at_odd}, 2).flatten(1, 2);
  return n % 2 == 0 ? mixed : cat({mixed, at_even.slice(1, half)}, 1);
}

template <class F>
Tensor scan_along(const Tensor& x, int64_t d, F combine) {
  int64_t outer = 1, inner = 1;
  for (int64_t e = 0; e < d; ++e) outer *= x.shape()[e];
  for (int64_t e = d + 1; e < x.dim(); ++e) inner *= x.shape()[e];
  const Tensor y = scan(x.reshape({outer, x.shape()[d], inner}), combine).reshape(x.shape());
  return y.shared_storage() == x.shared_storage() ? y.clone() : y;
}

// a − b, and 0 for equal infinities.
Tensor difference(const Tensor& a, const Tensor& b) {
  return where(logical_and(eq(a, b), isinf(a)), scalar(0, options_of(a)), a - b);
}

// log(eᵃ + eᵇ) for tensors of one shape.
Tensor log_add(const Tensor& a, const Tensor& b) {
  const auto value = [](const Tensor& u, const Tensor& v) {
    return maximum(u, v) + softplus(-abs(difference(u, v)));
  };
  return record("log_add", {a, b}, value(a.detach(), b.detach()),
                [a = Saved(a), b = Saved(b)](Backward& g) {
                  // As in logsumexp, the gradient is 0 if all values are −∞.
                  const Tensor empty_sum = eq(maximum(a(), b()), -HUGE_VAL);
                  const Tensor d = difference(a(), b()), in = masked_fill(g.grad(), empty_sum, 0);
                  return Tensors{in * sigmoid(d), in * sigmoid(-d)};
                });
}

}  // namespace

Tensor cumprod(const Tensor& x, Int d) {
  d = wrap_dim("cumprod", d, x.dim());
  if (is_narrow(x.dtype())) return cumprod(x.to(f32), d).to(x.dtype());
  return scan_along(as_number(x), d, [](const Tensor& a, const Tensor& b) { return a * b; });
}

Tensor logcumsumexp(const Tensor& x, Int d) {
  d = wrap_dim("logcumsumexp", d, x.dim());
  check_floating("logcumsumexp", x);
  if (is_narrow(x.dtype())) return logcumsumexp(x.to(f32), d).to(x.dtype());
  return scan_along(x, d, log_add);
}

}  // namespace stretto
