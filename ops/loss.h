// Cross-entropy of class scores against class indices.
#pragma once

#include "core/tensor.h"

namespace stretto {

enum class Reduction { mean, sum, none };

struct CrossEntropyOptions {
  int64_t ignore_index = -100;  // targets with this value count nothing
  double label_smoothing = 0;  // ε: target 1 − ε + ε/V for the true class, ε/V for the others
  Reduction reduction = Reduction::mean;  // the mean is over targets that are not ignored
};

/// logits [.., V], targets [..] (i64 or i32) → 0-d, or [..] with Reduction::none (0 where ignored).
/// Nats. The mean over no targets at all is 0. One fused pass; the gradient too.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options = {});

}  // namespace stretto
