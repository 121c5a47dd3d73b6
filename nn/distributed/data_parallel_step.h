// The gradient of a step whose batch is cut into micro-batches, micro-batches, computed one after
// the other or shared out to processes: the same bits for any number of processes (GradientReducer
// says which sums).
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "../../core/random.h"
#include "../module.h"
#include "gradient_reducer.h"

namespace stretto::nn {

/// A part's rows stand one after the other in the batch; its loss is a mean, which counts by the
/// share that it has of what is scored, and not where nothing is. A parameter that no part of any
/// process reaches has no gradient. Each part draws its own random numbers, and begins with the
/// buffers that the step began with; the first part's are kept. In one process a step can be
/// captured (nn/training/captured_step.h).
class DataParallelStep {
 public:
  /// With `pieces`, so many neighbouring processes have the same parts and share their sequences:
  /// the second dimension of what is cut, of which each has its piece. `scatter`: each process gets
  /// the gradients of its stretches (GradientReducer).
  DataParallelStep(const Module& model, Tensors parameters, int64_t micro_batches,
                   ProcessGroup& group, int64_t sequence_size = 1, bool scatter = false);

  /// Leaves the gradient, of the mean over the whole batch with this number, in the parameters, and
  /// returns that mean, f64 [1]. `loss` takes its batch from stage(). In one process nothing waits
  /// for a GPU, where a mean over nothing must therefore not be 0 / 0.
  Tensor operator()(int64_t batch, const std::function<Tensor()>& loss);
  /// A captured step is about to be replayed, with this batch.
  void begin(int64_t batch);

  /// While a loss is computed: the rows of its part of make(batch), on the model's device.
  /// `scored`: which of the tensors says by ignore_index what does not count (-1: all rows count
  /// the same).
  Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored);
  bool running() const { return micro_batch_ >= 0; }
  /// While a loss is computed, which passes it to its model (nn/forward_context.h): the processes
  /// that share the sequences, or null.
  ProcessGroup* sequence_group();

  /// The part whose loss is computed.
  int64_t micro_batch() const { return micro_batch_; }
  int64_t micro_batches() const { return micro_batches_; }
  int64_t sequence_size() const { return sequence_->size(); }
  int64_t first() const { return sums_.first(); }
  int64_t count() const { return sums_.count(); }
  GradientReducer& sums() { return sums_; }
  const GradientReducer& sums() const { return sums_; }

 private:
  struct Cut {
    Tensors rows;
    double share;  // of all that is scored
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
  const std::unique_ptr<ProcessGroup> sequence_;  // those that share this process's sequences
  GradientReducer sums_;
  RandomState begin_;   // of the step
  int64_t number_ = 0;  // of its batch
  int64_t micro_batch_ = -1;
  double share_ = -1;             // of the part; below 0: nothing has been staged
  Tensor weight_;                 // the same, f64 [] on the model's device
  bool group_passed_ = false;     // to the model
  std::optional<int64_t> batch_;  // that is made
  Tensors whole_;
};

}  // namespace stretto::nn
