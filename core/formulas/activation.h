// The names of the activation functions of feed-forward layers.
#pragma once

namespace stretto {

/// Activation functions. gelu is exact; gelu_tanh is its tanh approximation.
enum class Activation { relu, gelu, gelu_tanh, silu };

}  // namespace stretto
