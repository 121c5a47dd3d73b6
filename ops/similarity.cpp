#include "ops/similarity.h"

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto {

Tensor cosine_similarity(const Tensor& a, const Tensor& b, Int d, double eps) {
  const char* op = "cosine_similarity";
  check(is_floating(a.dtype()) && a.dtype() == b.dtype(), op, "a ", a, ", b ", b,
        "; both must have one floating-point dtype");
  check(eps > 0, op, "eps ", eps, "; must be positive");
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  d = wrap_dim(op, d, shape.dim());
  const DType wide = compute_type(a.dtype());
  const Tensor x = a.to(wide).expand(shape), y = b.to(wide).expand(shape);
  // The bound is inside of the root, so that the derivative of the root is finite for a vector of
  // zeros.
  const auto unit = [&](const Tensor& v) {
    const Tensor squares = sum(square(v), {d}, true);
    return v * rsqrt(maximum(squares, full({}, eps * eps, options_of(squares))));
  };
  return sum(unit(x) * unit(y), {d}).to(a.dtype());
}

}  // namespace stretto
