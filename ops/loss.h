// Losses: class scores against class indices or probabilities, values against values. For sequences
// without alignment see ops/ctc.h.
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
  /// Weights w of the classes, [V] in the dtype of the logits; undefined: 1. No gradient. The mean
  /// is then weighted: it is divided by the sum of w[target].
  Tensor weight = {};
};

/// Computes the cross entropy in nats: logits [.., V], targets [..] (i64 or i32) → 0-d, or [..]
/// with Reduction::none (0 for ignored targets). The classes are the last dimension, not dimension
/// 1 as in PyTorch: for images use movedim(). Without weights a fused op, forward and backward.
///
/// Targets may also be probabilities t [.., V] in the dtype of the logits (soft targets): the loss
/// is −Σ_v w[v] · t[v] · log softmax(logits)[v], and the mean is over all rows. It is
/// differentiable in the targets; ignore_index is not used, and label smoothing mixes t with 1/V.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});

/// Options of linear_cross_entropy().
struct LinearCrossEntropyOptions {
  int64_t ignore_index = -100;            ///< Targets with this value are ignored.
  double label_smoothing = 0;             ///< As for cross_entropy().
  Reduction reduction = Reduction::mean;  ///< The mean is over targets that are not ignored.
  double logit_scale = 1;                 ///< Multiplies the logits, before soft_cap.
  double soft_cap = 0;                    ///< > 0: logits z become c · tanh(z / c).
  int64_t chunk_rows = 0;                 ///< Rows per chunk; 0: chosen from the sizes.
};

/// Computes cross_entropy(linear(x, weight, bias), targets) chunk by chunk of the rows, so that at
/// most the logits of a chunk are in memory: x [.., in], weight [V, in], bias [V] or undefined,
/// targets [..] (i64 or i32) → 0-d, or [..] with Reduction::none. All but the targets have one
/// floating-point dtype.
///
/// With a mean or a sum, the gradients of each chunk are computed at once in the forward pass (in
/// bf16, that of the weight is summed in f32), and the backward pass multiplies them by the gradient
/// of the loss. With Reduction::none, the backward pass computes the logits again. By default a
/// chunk has at most about 2²⁶ logits, and fewer than 2²⁷ are one chunk. If one chunk has all rows, the
/// op is the two ops above.
/// Second derivatives need the logits of all rows.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& targets, const LinearCrossEntropyOptions& options = {});

/// Options of nll_loss().
struct NllOptions {
  int64_t ignore_index = -100;            ///< Targets with this value are ignored.
  Reduction reduction = Reduction::mean;  ///< The mean is over targets that are not ignored.
  /// Weights w of the classes, [V]; undefined: 1. No gradient. The mean is then weighted: it is
  /// divided by the sum of w[target].
  Tensor weight = {};
};

/// Computes −w[target] · log_p[.., target]: log probabilities [.., V] in a floating-point dtype,
/// for example from log_softmax, targets [..] (i64 or i32) → 0-d, or [..] with Reduction::none (0
/// for ignored targets).
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets,
                const NllOptions& options = {});

/// Computes (x − target)² → 0-d, or the shape of x with Reduction::none. x and target have the same
/// shape and floating-point dtype. Differentiable in both.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

/// Computes |x − target| in the same way. The derivative is 0 if x = target.
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);

/// Options of huber_loss().
struct HuberOptions {
  double delta = 1;                       ///< δ > 0, the largest distance with a quadratic loss.
  Reduction reduction = Reduction::mean;  ///< Reduction of the losses.
};

/// Computes ½d² if |d| ≤ δ, else δ · (|d| − ½δ), with d = x − target (Huber, 1964). Shapes and
/// dtypes as for mse_loss.
Tensor huber_loss(const Tensor& x, const Tensor& target, HuberOptions options = {});

/// Options of kl_div().
struct KlDivOptions {
  bool log_target = false;                ///< The target contains logarithms of probabilities.
  Reduction reduction = Reduction::mean;  ///< Reduction::mean averages over all elements.
};

/// Computes t · (log t − log p), the terms of the Kullback–Leibler divergence of p from t. Its
/// arguments are log p and t of one shape and floating-point dtype; terms with t = 0 are 0.
/// Differentiable in both.
///
/// The divergence of distributions in rows is the sum over a row: for the mean over rows
/// ("batchmean"), use Reduction::sum and divide by the number of rows.
Tensor kl_div(const Tensor& log_p, const Tensor& target, KlDivOptions options = {});

/// Computes −target · log p − (1 − target) · log(1 − p) for probabilities p and targets in [0, 1],
/// of one shape and one floating-point dtype. Differentiable in both.
///
/// As in PyTorch, logarithms are at least −100, and the derivative with respect to p is
/// (p − target) / max(p·(1 − p), 10⁻¹²). Losses and gradients are therefore finite for p = 0 and
/// p = 1. The gradient is 0 if p = target, the loss only if both are 0 or both are 1.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& target,
                            Reduction reduction = Reduction::mean);

/// Computes the same for p = sigmoid(logits), without cancellation: target · log(1 + e^−x) + (1 −
/// target) · log(1 + eˣ).
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace stretto
