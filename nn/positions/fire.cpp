#include "nn/positions/fire.h"

#include <cmath>

#include "ops/create.h"
#include "ops/elementwise.h"

namespace stretto::nn {

Fire::Fire(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(o),
      c(parameter("c", full({1}, 0.1))),
      multiplier(parameter("multiplier", ones({1}))),
      linear2(*this, "linear2", {o.hidden, shape.n_heads}) {
  check(o.hidden >= 1 && o.threshold >= 0, "Fire", "hidden ", o.hidden, ", threshold ", o.threshold,
        "; hidden must be at least 1, threshold not negative");
}

void Fire::apply(AttentionInputs& inputs) const {
  const auto m = double(inputs.n_queries()), n = double(inputs.n_keys()),
             first = double(inputs.first_position);
  const DType dtype = compute_type(c.dtype());  // bf16: integers only up to 256
  const TensorOptions number{.dtype = dtype, .device = c.device()};
  // Distances are computed from indices into these keys, for which f32 is exact; the query position
  // i is that in the whole sequence.
  const Tensor distance = arange(n - m, n, 1, number).unsqueeze(1) - arange(0, n, 1, number);
  const Tensor i = arange(first + n - m, first + n, 1, number).unsqueeze(1);
  const Tensor curve = c.to(dtype), threshold = abs(multiplier.to(dtype) * options.threshold);
  const Tensor x =
      log(abs(curve * distance) + 1) / (log(abs(curve * maximum(i, threshold)) + 1) + 1e-6);
  const Tensor b = linear2(relu(linear1(x.to(c.dtype()).unsqueeze(2))));
  add_bias(inputs, b.permute({2, 0, 1}));
}

std::string Fire::label() const {
  return str("Fire(hidden ", options.hidden, ", threshold ", options.threshold, ")");
}

}  // namespace stretto::nn
