// How a Trainer takes a step: in turns with the host, on the CPU and with other processes, or on a
// GPU, as plain calls or a captured graph. Internal to nn/.
#pragma once

#include <functional>
#include <memory>

#include "../../core/tensor.h"
#include "../distributed/gradient_reducer.h"
#include "trainer.h"

namespace stretto::nn {

/// One way of taking steps, chosen by the options and the device (make_training_step).
class TrainingStep {
 public:
  using Loss = std::function<Tensor(int64_t batch)>;

  TrainingStep(Module& model, Optimizer& optimizer, const TrainerOptions& options)
      : model_(model), optimizer_(optimizer), options_(options) {}
  virtual ~TrainingStep() = default;
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// One update, the `number`-th, by the gradient of the mean over all targets that are scored in
  /// its batch, number − 1. Throws as Trainer::step() does; nothing is updated then.
  virtual StepResult take(const Loss& loss, int64_t number) = 0;
  /// While a loss is computed: make(batch) on the model's device, as Trainer::stage() says.
  virtual Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored) = 0;

  /// This process's micro-batches, and the one whose loss is computed.
  virtual int64_t first_micro_batch() const = 0;
  virtual int64_t local_micro_batches() const = 0;
  virtual int64_t micro_batch() const = 0;
  virtual ProcessGroup* sequence_group() = 0;
  virtual Communication communication() const = 0;
  /// Whether losses are of micro-batches, or pieces of a batch.
  virtual bool cuts_batches() const = 0;
  /// The optimizer's state as a whole in the first process, for a checkpoint, and again shared out.
  virtual void gather_state() {}
  virtual void keep_own_state() {}

 protected:
  Module& model_;
  Optimizer& optimizer_;
  const TrainerOptions& options_;
};

/// Throws Error of "Trainer" if options of the step exclude each other.
void check_step_options(const TrainerOptions& options);

std::unique_ptr<TrainingStep> make_training_step(Module& model, Optimizer& optimizer,
                                                 const TrainerOptions& options);

/// options.micro_batches, or by default 8 for programs that mpirun has started, else 1.
int64_t micro_batches_of(const TrainerOptions& options);

}  // namespace stretto::nn
