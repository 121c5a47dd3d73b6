#include "nn/positions/relative_sinusoid.h"

#include <algorithm>

#include "nn/positions/sinusoid.h"
#include "ops/create.h"
#include "ops/elementwise.h"

namespace stretto::nn {

Tensor DistanceSinusoids::operator()(int64_t past, int64_t future, int64_t d,
                                     TensorOptions options) const {
  check(past >= 0 && future >= 0, "DistanceSinusoids", "distances from ", past, " to ", -future,
        "; past and future must not be negative");
  const auto make = [&](int64_t first, TensorOptions o) {
    return stretto::nn::sinusoids(first + future + 1, d, Sinusoid::concatenated, first, -1, o);
  };
  if (options.device.is_cuda()) return make(past, options);  // sinusoids() caches GPU tables
  std::lock_guard lock(mutex_);
  const bool enough = kept_.defined() && past <= past_ && past_ + future < kept_.size(0) &&
                      kept_.dtype() == options.dtype && kept_.device() == options.device &&
                      kept_.size(1) == d;
  if (!enough) {
    // A memory grows by one segment per call; a table for twice the distance lasts for many calls.
    const int64_t first = std::max(past, std::min(2 * past, 2 * past_));
    kept_ = make(first, {.dtype = options.dtype, .device = options.device});
    past_ = first;
  }
  return kept_.slice(0, past_ - past, past_ + future + 1);
}

RelativeSinusoid::RelativeSinusoid(Module& parent, HeadShape s, Options o)
    : PositionalEncoding(parent),
      shape(s),
      options(std::move(o)),
      u(bias("u", options.u)),
      v(bias("v", options.v)) {
  check(options.clamp >= 0, "RelativeSinusoid", "clamp ", options.clamp,
        "; must not be negative (0: none)");
  check(shape.d_model % 2 == 0, "RelativeSinusoid", "d_model ", shape.d_model,
        "; must be even: half the columns are sines, half cosines");
  check(options.u.defined() == options.v.defined(), "RelativeSinusoid",
        "only one of u and v is shared; share both or neither");
}

Tensor RelativeSinusoid::bias(const char* name, const Tensor& given) {
  const Shape expected{shape.n_heads, shape.d_key};
  if (!given.defined()) return parameter(name, zeros(expected));
  check(given.shape() == expected, "RelativeSinusoid", name, ' ', given, "; must be ", expected);
  return shared_parameter(name, given);
}

void RelativeSinusoid::apply(AttentionInputs& inputs) const {
  const bool causal = inputs.options.mask.is_causal();
  Tensor rows = inputs.forward.shared_table;
  int64_t past = 0;
  if (rows.defined()) {
    check(causal, "RelativeSinusoid",
          "a shared table has only distances of 0 and more; attention must be causal");
    check(rows.dim() == 2 && rows.size(0) >= 1 && rows.size(1) == shape.d_model, "RelativeSinusoid",
          "shared table ", rows, "; must be [distances, ", shape.d_model, "]");
    past = rows.size(0) - 1;
  } else {
    auto clamped = [&](int64_t n) {
      const int64_t distance = std::max<int64_t>(n - 1, 0);
      return options.clamp > 0 ? std::min(distance, options.clamp) : distance;
    };
    past = clamped(inputs.n_keys_of_all());
    rows = sinusoids_(past, causal ? 0 : clamped(inputs.n_queries()), shape.d_model,
                      options_of(r.weight));
  }
  const Tensor table = r(rows).reshape({rows.size(0), shape.n_heads, shape.d_key}).transpose(0, 1);
  inputs.options.relative_keys = {
      .rows = table, .zero_row = past, .out_of_range = OutOfRange::clip};
  inputs.options.relative_query = inputs.q + v.unsqueeze(1);
  inputs.q = inputs.q + u.unsqueeze(1);
}

std::string RelativeSinusoid::label() const {
  return str("RelativeSinusoid(", options.clamp > 0 ? str("clamp ", options.clamp, ", ") : "",
             options.u.defined() ? "shared u, v)" : "own u, v)");
}

}  // namespace stretto::nn
