// Gradient accumulation: a step over several micro-batches is the mean over all that they score.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "../../core/tensor.h"
#include "../../ops/mean_watch.h"

namespace stretto::nn {

/// One step's micro-batches. Each loss is a mean over what its micro-batch scores; weighted by that
/// count, the losses and their gradients add up to the mean over the whole step. Counts stay on the
/// device of the batches, so that a step on a GPU is captured with them. Where a batch was not
/// counted, its loss is looked at: if that has one mean (MeanWatch), this is the count. If it has
/// none, or the same several in all micro-batches, each weighs as much as another.
class MicroBatches {
 public:
  /// n of them; 1: losses and gradients are left as they are.
  explicit MicroBatches(int64_t n) : n_(n) {}

  /// The next loss is about to be computed.
  void begin();
  /// Its batch: the elements of batch[scored] that are not `not_scored` count, or, if scored is −1,
  /// the rows of batch[0]; the last call with a `scored` decides, else the first.
  void count(const Tensors& batch, int scored);

  /// The loss is computed.
  void end();

  /// What is differentiated in place of `loss`: the loss times its weight, near 1.
  Tensor weighted(const Tensor& loss);
  /// True if the micro-batch of the last loss scores nothing. Waits for the device.
  bool scores_nothing() const;

  /// After the last backward pass: makes the parameters' gradients those of the step's mean loss,
  /// and returns that, f64 [1].
  Tensor finish(const Tensors& parameters);

 private:
  const int64_t n_;
  int64_t begun_ = 0, counted_ = 0;
  std::optional<MeanWatch> watch_;
  std::vector<double> several_;   // counts of the first loss with several means
  Tensor count_, first_, total_;  // f64 []; undefined where nothing is counted
  Tensor loss_;                   // f64 [1]
};

}  // namespace stretto::nn
