// What a step of a model that predicts tokens is given.
#pragma once

#include <cstdint>

#include "../../core/tensor.h"

namespace stretto::nn {

/// The target of a position that is not scored: CrossEntropyOptions::ignore_index.
constexpr int64_t ignore_index = -100;

/// Tokens and, for each, the one to be predicted after it or ignore_index; both i64 [B, L].
struct Batch {
  Tensor inputs, targets;
  Batch to(Device device) const { return {inputs.to(device), targets.to(device)}; }
};

}  // namespace stretto::nn
