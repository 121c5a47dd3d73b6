// Losses: class scores against class indices, and values against values.
//
// `Reduction::mean` averages over the targets that are not ignored. If all are ignored, the
// mean is 0.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// How the losses of single targets are reduced: to their mean, to their sum, or not at all.
enum class Reduction { mean, sum, none };

/// Options of cross_entropy().
struct CrossEntropyOptions {
  int64_t ignore_index = -100;  ///< Targets with this value are ignored.
  /// ε: the target is 1 − ε + ε/V for the true class and ε/V for the others.
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;  ///< The mean is over targets that are not ignored.
};

/// Computes the cross entropy in nats: logits [.., V], targets [..] (i64 or i32) → 0-d, or [..]
/// with Reduction::none (0 for ignored targets). A fused op, forward and backward.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options = {});

/// Options of nll_loss().
struct NllOptions {
  int64_t ignore_index = -100;            ///< Targets with this value are ignored.
  Reduction reduction = Reduction::mean;  ///< The mean is over targets that are not ignored.
};

/// Computes −log_p[.., target]: log probabilities [.., V] in a floating-point dtype, for
/// example from log_softmax, targets [..] (i64 or i32) → 0-d, or [..] with Reduction::none (0
/// for ignored targets).
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, NllOptions options = {});

/// Computes (x − target)² → 0-d, or the shape of x with Reduction::none. x and target have the same
/// shape and floating-point dtype. Differentiable in both.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

/// Computes −target · log p − (1 − target) · log(1 − p) for probabilities p and targets in [0, 1],
/// of one shape and one floating-point dtype. Differentiable in both.
///
/// As in PyTorch, logarithms are at least −100, and the derivative with respect to p is
/// (p − target) / max(p·(1 − p), 10⁻¹²). Losses and gradients are therefore finite for p = 0 and
/// p = 1, and are 0 if the target is equal to p.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target,
                            Reduction reduction = Reduction::mean);

/// Computes the same for p = sigmoid(logits), without cancellation: target · log(1 + e^−x) + (1 −
/// target) · log(1 + eˣ).
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace stretto
