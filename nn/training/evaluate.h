// Judging a model: evaluation mode for a scope, and the mean loss of batches.
#pragma once

#include <functional>
#include <vector>

#include "../../autograd/tape.h"
#include "../data/batch.h"
#include "../module.h"

namespace stretto::nn {

/// Evaluation mode (no dropout) and no gradients for a scope; afterwards every module below is in
/// the mode it was in, also where the scope is left by an exception.
///
///     nn::EvalMode guard(model);
class EvalMode {
 public:
  explicit EvalMode(Module& model);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  struct Mode {
    Module* module;
    bool training;
  };
  std::vector<Mode> before_;  // a parent before its children
  NoGrad no_grad_;
};

/// A sum of losses in nats, and of how many tokens.
struct LossSum {
  double loss = 0;
  int64_t tokens = 0;

  /// Adds losses, one for each target (cross_entropy with Reduction::none), where the target is not
  /// `ignore_index`.
  void add(const Tensor& losses, const Tensor& targets);
  /// NaN of no tokens.
  double mean() const { return loss / double(tokens); }
};

/// Hands over batches one by one: calls its argument with each.
using EachBatch = std::function<void(const std::function<void(const Batch&)>&)>;

/// Mean cross-entropy in nats of all scored tokens, in evaluation mode. `logits` makes
/// [B, L, vocabulary] of a batch's inputs [B, L]; a model that is called that way will do, and then
/// the batches are moved to its device.
double mean_loss(Module& model, const std::function<Tensor(const Tensor&)>& logits,
                 const EachBatch& batches);
template <class Model>
double mean_loss(Model& model, const EachBatch& batches) {
  return mean_loss(
      model, [&](const Tensor& inputs) { return model(inputs); }, batches);
}
template <class Model>
double mean_loss(Model& model, const std::vector<Batch>& batches) {
  return mean_loss(model, [&](const std::function<void(const Batch&)>& score) {
    for (const Batch& batch : batches) score(batch);
  });
}

}  // namespace stretto::nn
