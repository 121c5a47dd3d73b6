// The gradient of a training step over micro-batches, computed one after the other or distributed
// over processes. GradientReducer makes it bit-identical for any number of processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "../../core/random.h"
#include "../module.h"
#include "gradient_reducer.h"

namespace stretto::nn {

/// Computes the gradient of a step. A micro-batch is a range of consecutive rows of the batch. Its
/// loss is a mean and is weighted by the micro-batch's share of all scored targets; a micro-batch
/// without scored targets is ignored. A parameter that no micro-batch of any process reaches gets
/// no gradient.
/// Each micro-batch has its own random streams and begins with the buffers from the start of the
/// step; the step leaves the buffers of the first micro-batch. With one process a step can be
/// captured as a CUDA graph (nn/training/captured_step.h).
class DataParallelStep {
 public:
  /// With `sequence_size` > 1, that many consecutive ranks share each micro-batch, and each of them
  /// has a chunk of the sequences, dimension 1 of the staged tensors. With `scatter`, gradients are
  /// reduce-scattered, as in GradientReducer.
  DataParallelStep(const Module& model, Tensors parameters, int64_t micro_batches,
                   ProcessGroup& group, int64_t sequence_size = 1, bool scatter = false);

  /// Computes the mean loss over batch number `batch`, f64 [1], and leaves its gradient in the
  /// parameters. `loss` must get its batch from stage(). With one process the host does not wait
  /// for a GPU; there, the loss of a micro-batch without scored targets must not be NaN.
  Tensor operator()(int64_t batch, const std::function<Tensor()>& loss);
  /// Sets the batch number of a captured step that is about to be replayed.
  void begin(int64_t batch);

  /// Returns the rows of make(batch) that belong to the current micro-batch, on the model's device;
  /// to be called by the loss. `scored` is the index of the tensor of targets, whose elements other
  /// than ignore_index determine the weight of the micro-batch (-1: all rows count equally).
  Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored);
  /// True while a loss is being computed.
  bool running() const { return micro_batch_ >= 0; }
  /// Returns the ranks that share the sequences, or null; the loss must pass the result to its
  /// model (nn/forward_context.h).
  ProcessGroup* sequence_group();

  /// Returns the micro-batch whose loss is being computed.
  int64_t micro_batch() const { return micro_batch_; }
  int64_t micro_batches() const { return micro_batches_; }
  int64_t sequence_size() const { return sequence_->size(); }
  int64_t first() const { return reducer_.first(); }
  int64_t count() const { return reducer_.count(); }
  GradientReducer& reducer() { return reducer_; }
  const GradientReducer& reducer() const { return reducer_; }

 private:
  struct Cut {
    Tensors rows;
    double share;  // fraction of all scored targets
  };
  Cut cut(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored,
          int64_t micro_batch);
  Tensor sequence_chunk(const Tensor& rows) const;
  Tensor weighted(Tensor loss) const;
  Tensor finish(const Tensors& losses);

  const Module& model_;
  const Tensors parameters_;
  const int64_t micro_batches_;
  ProcessGroup& group_;
  const std::unique_ptr<ProcessGroup> sequence_;  // the ranks that share this rank's sequences
  GradientReducer reducer_;
  RandomState begin_;             // at the start of the step
  int64_t number_ = 0;            // batch number of the step
  int64_t micro_batch_ = -1;      // −1: no loss is being computed
  double share_ = -1;             // Cut::share of the micro-batch; below 0: nothing is staged yet
  Tensor weight_;                 // share_ as f64 [] on the model's device
  bool group_passed_ = false;     // the loss has called sequence_group()
  std::optional<int64_t> batch_;  // number of the batch in whole_
  Tensors whole_;
};

}  // namespace stretto::nn
