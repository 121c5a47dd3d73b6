// The batch of a model: inputs, the classes, for example tokens, that it is to predict, and
// padding.
#pragma once

#include <cstdint>

#include "../../core/tensor.h"

namespace stretto::nn {

/// The target of a position that is not scored: CrossEntropyOptions::ignore_index.
constexpr int64_t ignore_index = -100;

/// A batch of B inputs, for example token sequences, and their targets.
struct Batch {
  Tensor inputs;  ///< Tokens, i64 [B, L]; or a tensor [B, …] of any dtype that the model accepts.
  /// The token to predict at each position, or ignore_index; i64 [B, L], or [B] for one class per
  /// input.
  Tensor targets;
  /// bool [B, L], true where there is no token (AttentionMask::key_padding); undefined: no padding.
  Tensor padding = {};
  /// The document of each position in packed sequences, i64 [B, L] (ForwardContext::segments);
  /// undefined: rows are not packed.
  Tensor segments = {};
  /// Returns the batch on a device.
  Batch to(Device device) const {
    Batch moved = *this;
    for (Tensor* x : {&moved.inputs, &moved.targets, &moved.padding, &moved.segments})
      if (x->defined()) *x = x->to(device);
    return moved;
  }
};

}  // namespace stretto::nn
