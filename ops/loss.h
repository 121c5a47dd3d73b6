// Losses: of class scores against class indices, and of numbers against numbers.
//
// In all of them `Reduction::mean` is over what counts, and 0 where nothing does.
#pragma once

#include "../core/tensor.h"

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

struct NllOptions {
  int64_t ignore_index = -100;            // targets with this value count nothing
  Reduction reduction = Reduction::mean;  // the mean is over targets that are not ignored
};

/// −log_p[.., target]: log probabilities [.., V], as log_softmax gives them, targets [..] (i64 or
/// i32) → 0-d, or [..] with Reduction::none (0 where ignored). In floating dtypes.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, NllOptions options = {});

/// (x − target)², both floating and of one shape and dtype → 0-d, or their shape with
/// Reduction::none. Differentiable in both.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

/// −target · log p − (1 − target) · log(1 − p) for probabilities p in [0, 1] and targets in [0, 1],
/// both floating and of one shape and dtype. Logarithms end at −100 and the slope in p is
/// (p − target) / max(p·(1 − p), 10⁻¹²), so that p = 0 and p = 1 have finite losses and gradients,
/// 0 where the target is the same (as in PyTorch). Differentiable in both.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target,
                            Reduction reduction = Reduction::mean);

/// The same of logits, p = sigmoid(logits), without cancellation:
/// target · log(1 + e^−x) + (1 − target) · log(1 + eˣ).
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace stretto
