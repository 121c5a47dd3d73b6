// Activation functions of feed-forward layers as one op with gate and dropout. Internal to ops/ and
// cuda/.
#pragma once

#include "elementwise_math.h"
#include "feed_forward.h"

namespace stretto {

/// Calls go<F>() with the type of f (ops/elementwise_math.h).
template <class Go>
decltype(auto) dispatch_activation(Activation f, Go&& go) {
  switch (f) {
    case Activation::relu:
      return go.template operator()<elementwise::Relu>();
    case Activation::gelu:
      return go.template operator()<elementwise::Gelu>();
    case Activation::gelu_tanh:
      return go.template operator()<elementwise::GeluTanh>();
    case Activation::silu:
      break;
  }
  return go.template operator()<elementwise::Silu>();
}

/// Returns dropout(f(x) · up, p, key), or dropout(f(x), p, key) if `up` is undefined.
Tensor activate_and_drop(const Tensor& x, const Tensor& up, Activation f, double p, RandomKey key);

}  // namespace stretto
