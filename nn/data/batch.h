// The batch of a model that predicts tokens.
#pragma once

#include <cstdint>

#include "../../core/tensor.h"

namespace stretto::nn {

/// The target of a position that is not scored: CrossEntropyOptions::ignore_index.
constexpr int64_t ignore_index = -100;

/// A batch of token sequences and their targets.
struct Batch {
  Tensor inputs;   ///< Tokens, i64 [B, L].
  Tensor targets;  ///< The token to predict at each position, or ignore_index; i64 [B, L].
  /// Returns the batch on a device.
  Batch to(Device device) const { return {inputs.to(device), targets.to(device)}; }
};

}  // namespace stretto::nn
