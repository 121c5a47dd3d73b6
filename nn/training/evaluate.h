// The mean loss of a model over batches.
#pragma once

#include <functional>
#include <vector>

#include "../data/batch.h"
#include "../forward_context.h"
#include "../module.h"

namespace stretto::nn {

/// A sum of losses and the number of scored tokens.
struct LossSum {
  double loss = 0;     ///< Sum of the losses, in nats.
  int64_t tokens = 0;  ///< Number of losses in the sum.

  /// Adds the losses of all targets other than `ignore_index`. `losses` and `targets` have one
  /// shape (cross_entropy with Reduction::none).
  void add(const Tensor& losses, const Tensor& targets);
  /// Returns the mean loss; NaN without tokens.
  double mean() const { return loss / double(tokens); }
};

/// A function that calls its argument with each batch, one after the other.
using EachBatch = std::function<void(const std::function<void(const Batch&)>&)>;

/// Returns the mean cross-entropy in nats over all scored targets, in evaluation mode. `logits`
/// computes [B, L, vocabulary] from the inputs [B, L] of a batch, or in general [.., V] for targets
/// [..]. Batches are moved to the device of the model.
double mean_loss(Module& model, const std::function<Tensor(const Tensor&)>& logits,
                 const EachBatch& batches);
/// Returns the mean cross-entropy as above, for logits that depend on more than the inputs.
double mean_loss(Module& model, const std::function<Tensor(const Batch&)>& logits,
                 const EachBatch& batches);
/// Returns the mean cross-entropy as above, with logits = model(inputs), or model(inputs, padding)
/// for a batch with padding, or model(inputs, forward) for a batch with segments.
template <class Model>
double mean_loss(Model& model, const EachBatch& batches) {
  const auto logits = [&](const Batch& batch) {
    if constexpr (requires { model(batch.inputs, batch.padding); })
      if (batch.padding.defined()) return model(batch.inputs, batch.padding);
    ForwardContext forward = begin_forward();
    forward.segments = batch.segments;
    if constexpr (requires { model(batch.inputs, forward); })
      if (batch.segments.defined()) return model(batch.inputs, forward);
    const char* const member = batch.padding.defined() ? "padding" : "segments";
    check(!batch.padding.defined() && !batch.segments.defined(), "mean_loss", "a batch has ",
          member, ", and the model cannot be called with inputs and ", member,
          "; pass a function of the batch that computes the logits");
    return model(batch.inputs);
  };
  return mean_loss(model, std::function<Tensor(const Batch&)>(logits), batches);
}
/// Returns the mean cross-entropy as above, over the batches in a vector.
template <class Model>
double mean_loss(Model& model, const std::vector<Batch>& batches) {
  return mean_loss(model, [&](const std::function<void(const Batch&)>& score) {
    for (const Batch& batch : batches) score(batch);
  });
}

/// Returns the mean of any loss over all scored targets, in evaluation mode. `loss` returns the
/// mean over the scored targets of one batch, one element, as in training; its weight is their
/// number. Batches are moved to the device of the model.
double mean_loss(Module& model, const std::vector<Batch>& batches,
                 const std::function<Tensor(const Batch&)>& loss);
/// Returns the mean of any loss over batches 0 … batches − 1, in evaluation mode: the sum of the
/// losses that `loss` returns for each, divided by their number.
double mean_loss(Module& model, int64_t batches, const std::function<LossSum(int64_t)>& loss);

}  // namespace stretto::nn
