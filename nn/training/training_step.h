// The implementations of a Trainer's step: on the CPU or with several processes, where the host
// checks the gradient before the update, and on one GPU, eager or as a CUDA graph. Internal to nn/.
#pragma once

#include <functional>
#include <memory>

#include "../../core/tensor.h"
#include "../distributed/gradient_reducer.h"
#include "trainer.h"

namespace stretto::nn {

/// Makes training steps; make_training_step() selects the implementation by options and device.
class TrainingStep {
 public:
  using Loss = std::function<Tensor(int64_t batch)>;

  TrainingStep(Module& model, Optimizer& optimizer, const TrainerOptions& options)
      : model_(model), optimizer_(optimizer), options_(options) {}
  virtual ~TrainingStep() = default;
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// Makes update `number` (from 1) with the gradient of the mean loss over all scored targets of
  /// batch number − 1. Throws as Trainer::step() does; then nothing is updated.
  virtual StepResult take(const Loss& loss, int64_t number) = 0;
  /// As Trainer::stage(); called while a loss is computed.
  virtual Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored) = 0;

  /// The micro-batches of this rank, and the one whose loss is being computed.
  virtual int64_t first_micro_batch() const = 0;
  virtual int64_t local_micro_batches() const = 0;
  virtual int64_t micro_batch() const = 0;
  virtual ProcessGroup* sequence_group() = 0;
  virtual Communication communication() const = 0;
  /// True if the loss is called for parts of a batch: micro-batches or chunks of sequences.
  virtual bool cuts_batches() const = 0;
  /// Gathers the optimizer state on rank 0, for a checkpoint.
  virtual void gather_state() {}
  /// Shards the optimizer state again: keeps only this rank's part.
  virtual void keep_own_state() {}

 protected:
  Module& model_;
  Optimizer& optimizer_;
  const TrainerOptions& options_;
};

/// Throws Error "[Trainer] …" if options exclude each other.
void check_step_options(const TrainerOptions& options);

std::unique_ptr<TrainingStep> make_training_step(Module& model, Optimizer& optimizer,
                                                 const TrainerOptions& options);

/// Returns options.micro_batches; if that is 0, 8 under mpirun and 1 without.
int64_t micro_batches_of(const TrainerOptions& options);

}  // namespace stretto::nn
