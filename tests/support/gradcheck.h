#pragma once

// Checks of gradients against central differences, in f64.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "ops/create.h"
#include "ops/gradcheck.h"
#include "tests/support/catch.h"

namespace stretto::testing {

using TensorFunction = std::function<Tensor(const Tensors&)>;

/// Returns a copy of x that is column-major with gaps, so that no kernel treats it as contiguous.
inline Tensor strided_copy(const Tensor& x) {
  Shape strides = x.shape();
  int64_t step = 2;
  for (int64_t d = 0; d < x.dim(); ++d) {
    strides[d] = step;
    step *= std::max<int64_t>(x.size(d), 1);
  }
  Tensor y = make_view(empty({step}, options_of(x)), 1, x.shape(), strides);
  return y.copy_(x.detach());
}

/// Returns values in [-1, 1) that depend only on `stream` and the index of the element.
inline Tensor fixed_noise(const Shape& shape, uint64_t stream, DType dtype = f64) {
  std::vector<double> x(size_t(shape.numel()));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = 2.0 * uniform_from_bits(random_bits({.seed = 77, .stream = stream}, i)) - 1.0;
  return tensor(x, shape).to(dtype);
}

/// Returns fixed_noise() as a leaf that requires a gradient.
inline Tensor fixed_leaf(const Shape& shape, uint64_t stream) {
  return fixed_noise(shape, stream).set_requires_grad();
}

/// Checks in the running test that gradcheck() passes.
inline void check_gradients(const TensorFunction& f, const Tensors& inputs, bool twice = true) {
  try {
    gradcheck(f, inputs, {.twice = twice});
    CHECK(true);
  } catch (const Error& e) {
    FAIL_CHECK(e.what());
  }
}

}  // namespace stretto::testing
