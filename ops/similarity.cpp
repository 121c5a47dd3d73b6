#include "ops/similarity.h"

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

// The bound is inside of the root, so that the derivative of the root is finite for a vector of
// zeros.
Tensor unit(const Tensor& v, int64_t d, double eps) {
  return v * rsqrt(maximum(sum(square(v), {d}, true), eps * eps));
}

}  // namespace

Tensor cosine_similarity(const Tensor& a, const Tensor& b, Int d, double eps) {
  const char* op = "cosine_similarity";
  check(is_floating(a.dtype()) && a.dtype() == b.dtype(), op, "a ", a, ", b ", b,
        "; both must have one floating-point dtype");
  check(eps > 0, op, "eps ", eps, "; must be positive");
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  d = wrap_dim(op, d, shape.dim());
  const DType wide = compute_type(a.dtype());
  const Tensor x = a.to(wide).expand(shape), y = b.to(wide).expand(shape);
  return sum(unit(x, d, eps) * unit(y, d, eps), {d}).to(a.dtype());
}

Tensor normalize(const Tensor& x, Int d, double eps) {
  check_floating("normalize", x);
  check(eps > 0, "normalize", "eps ", eps, "; must be positive");
  return unit(x.to(compute_type(x.dtype())), wrap_dim("normalize", d, x.dim()), eps).to(x.dtype());
}

}  // namespace stretto
