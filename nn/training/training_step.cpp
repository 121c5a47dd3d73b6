#include "nn/training/training_step.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "autograd/tape.h"
#include "nn/data/stage.h"
#include "nn/distributed/data_parallel_step.h"
#include "nn/distributed/optimizer_shards.h"
#include "nn/distributed/process_group.h"
#include "nn/training/captured_step.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

void check_number(int64_t step, const char* what, double value) {
  check(std::isfinite(value), "train", "step ", step, ": the ", what, " is ", value,
        anomaly_detection() ? "" : "; anomaly detection names the op that first produces it");
}

// Calls f and adds the number of the step to the text of its errors, without repeating "[train]".
template <class F>
auto at_step(int64_t step, F&& f) {
  const auto with_step = [&](const Error& e) {
    const std::string op = "[train] ", begin = str(op, "step ", step, ": ");
    std::string text = e.what();
    if (text.starts_with(begin)) return text;
    return begin + (text.starts_with(op) ? text.substr(op.size()) : text);
  };
  try {
    return f();
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(with_step(e));
  } catch (const Error& e) {
    throw Error(with_step(e));
  }
}

// Checks in the first step that the optimizer trains the model. Optimizer::step() checks that
// nothing else should be trained.
void check_optimizer(const Module& model, const Optimizer& optimizer, int64_t step) {
  std::unordered_set<const void*> own;
  for (const Tensor& p : model.root().parameters()) own.insert(p.id());
  const Tensors updated = optimizer.parameters();
  check(std::any_of(updated.begin(), updated.end(),
                    [&](const Tensor& p) { return p.requires_grad() && own.contains(p.id()); }),
        "train", "step ", step, ": the optimizer has no parameter of ", model.root().label(),
        " that is trained; make it from the parameters that the model has now");
}

// Computes the gradient of a step, from the whole batch or from micro-batches.
class GradientStep : public TrainingStep {
 public:
  GradientStep(Module& model, Optimizer& optimizer, const TrainerOptions& options)
      : TrainingStep(model, optimizer, options) {
    if (micro_batches_of(options) > 1 || options.sequence_parallel > 1 ||
        process_group().size() > 1)
      // On a GPU gradients are not scattered: every process computes the norm of all gradients.
      parallel_.emplace(model, optimizer.parameters(), micro_batches_of(options), process_group(),
                        options.sequence_parallel,
                        options.shard_optimizer && model.device().is_cpu());
  }

  Tensors stage(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored) override {
    if (parallel_ && parallel_->running()) return parallel_->stage(batch, make, scored);
    // A replay of a captured step calls this lambda again, with another value of batch_.
    return nn::stage(model_.device(),
                     [this, make, within = batch - batch_] { return make(batch_ + within); });
  }

  int64_t first_micro_batch() const override { return parallel_ ? parallel_->first() : 0; }
  int64_t local_micro_batches() const override { return parallel_ ? parallel_->count() : 1; }
  int64_t micro_batch() const override {
    return parallel_ && parallel_->running() ? parallel_->micro_batch() : 0;
  }
  ProcessGroup* sequence_group() override {
    return parallel_ ? parallel_->sequence_group() : nullptr;
  }
  Communication communication() const override {
    return parallel_ ? parallel_->reducer().communication() : Communication();
  }
  bool cuts_batches() const override { return parallel_.has_value(); }

 protected:
  void begin(int64_t batch) {
    if (!checked_) check_optimizer(model_, optimizer_, batch + 1);
    checked_ = true;
    batch_ = batch;
    if (parallel_) parallel_->begin(batch);
  }
  // Leaves the gradient in the parameters and returns the loss, f64 [1], for the batch of begin().
  // Without micro-batches, inspect(loss) is called before the backward pass.
  template <class Inspect>
  Tensor gradient(const Loss& loss, Inspect inspect) {
    if (parallel_) return (*parallel_)(batch_, [&] { return loss(batch_); });
    optimizer_.zero_grad();
    const Tensor value = loss(batch_);
    inspect(value);
    value.backward();
    return value.detach().to(f64).reshape({1});
  }

  int64_t batch_ = 0;  // of the current step
  std::optional<DataParallelStep> parallel_;
  bool checked_ = false;  // by check_optimizer()
};

// On the CPU or with several processes: the host reads loss and norm before the update.
class HostStep : public GradientStep {
 public:
  HostStep(Module& model, Optimizer& optimizer, const TrainerOptions& options)
      : GradientStep(model, optimizer, options) {
    if (options.shard_optimizer && process_group().size() > 1)
      shards_.emplace(optimizer, parallel_->reducer(), process_group());
  }

  StepResult take(const Loss& loss, int64_t number) override {
    begin(number - 1);
    StepResult result{};
    const auto inspect = [&](const Tensor& value) { check_number(number, "loss", value.item()); };
    at_step(number, [&] { result.loss = gradient(loss, inspect).item(); });
    check_number(number, "loss", result.loss);
    at_step(number, [&] {
      result.gradient_norm =
          parallel_ && parallel_->reducer().scatters()
              ? shards_->clip(options_.max_grad_norm)
              : clip_grad_norm(optimizer_.parameters(), options_.max_grad_norm).item();
    });
    check_number(number, "norm of the gradient", result.gradient_norm);
    at_step(number, [&] { shards_ ? shards_->step() : optimizer_.step(); });
    return result;
  }

  void gather_state() override {
    if (shards_) shards_->gather();
  }
  void keep_own_state() override {
    if (shards_) shards_->keep_own();
  }

 private:
  std::optional<OptimizerShards> shards_;
};

// On one GPU: the host waits once, for loss and norm together. A captured step includes the update,
// so both are read after it.
class GpuStep : public GradientStep {
 public:
  GpuStep(Module& model, Optimizer& optimizer, const TrainerOptions& options)
      : GradientStep(model, optimizer, options) {
    if (options.cuda_graph)
      captured_ = std::make_unique<CapturedStep>(model.device(), [this] { return compute(); });
  }

  StepResult take(const Loss& loss, int64_t number) override {
    begin(number - 1);
    loss_ = loss;
    const int64_t key = captured_ && options_.graph_key ? options_.graph_key(number - 1) : 0;
    Tensor loss_and_norm;
    at_step(number, [&] { loss_and_norm = captured_ ? (*captured_)(key) : compute(); });
    const auto read = loss_and_norm.to_vector<double>();
    check_number(number, "loss", read[0]);
    check_number(number, "norm of the gradient", read[1]);
    if (!captured_) at_step(number, [&] { optimizer_.step(); });
    return {read[0], read[1]};
  }

 private:
  // Returns the loss and the norm of the gradient, f64 [2].
  Tensor compute() {
    const Tensor loss = gradient(loss_, [](const Tensor&) {});
    const Tensor norm = clip_grad_norm(optimizer_.parameters(), options_.max_grad_norm);
    if (captured_) optimizer_.step();
    return cat({loss, norm.to(loss.device()).reshape({1})}, 0);
  }

  Loss loss_;  // of the current step
  std::unique_ptr<CapturedStep> captured_;
};

}  // namespace

int64_t micro_batches_of(const TrainerOptions& options) {
  if (options.micro_batches > 0) return options.micro_batches;
  return started_by_mpirun() ? 8 : 1;
}

void check_step_options(const TrainerOptions& options) {
  check(!options.cuda_graph || process_group().size() == 1, "Trainer",
        "cuda_graph supports one process, but there are ", process_group().size());
}

std::unique_ptr<TrainingStep> make_training_step(Module& model, Optimizer& optimizer,
                                                 const TrainerOptions& options) {
  check_step_options(options);
  const bool one_process = process_group().size() == 1;
  if (one_process && model.device().is_cuda())
    return std::make_unique<GpuStep>(model, optimizer, options);
  return std::make_unique<HostStep>(model, optimizer, options);
}

}  // namespace stretto::nn
