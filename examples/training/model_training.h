// One training of a model: its settings, the model, the optimiser, how far it is, and the
// checkpoint that continues it bit for bit. What a program adds is its data and the loss of a step.
#pragma once

#include <functional>
#include <future>
#include <string>
#include <utility>

#include "core/random.h"
#include "examples/common/settings.h"
#include "examples/training/training.h"
#include "examples/training/training_file.h"
#include "nn/training/optim.h"

namespace stretto::examples {

/// AdamW as Vaswani et al. 2017 set it (§5.3), of settings with learning_rate and weight_decay.
template <class Settings>
nn::AdamW::Options adamw_of(const Settings& s) {
  return {.lr = s.learning_rate, .beta2 = 0.98, .eps = 1e-9, .weight_decay = s.weight_decay};
}

/// `Settings` is a struct as in settings.h, with seed, steps and clip.
template <class Model, class Optimizer, class Settings>
class ModelTraining {
 public:
  int64_t step() const { return step_; }
  double learning_rate() const { return optimizer_.learning_rate(); }
  Device device() const { return device_; }

  /// As save_run; the time taken so far is kept where the schedule follows the clock.
  void save(const std::string& path, const RunProgress& progress) const {
    RunRecord record = self();
    record.progress = progress;
    keep(record);
    save_run(path, model, optimizer_, record);
  }
  /// Continues from a checkpoint of the same settings, as load_run.
  RunProgress load(const std::string& path) {
    RunRecord record = self();
    load_run(path, model, optimizer_, record, data_.others);
    take(record, path);
    step_ = record.step;
    return record.progress;
  }

  const Settings settings;
  Model model;

 protected:
  /// What a checkpoint knows of the data: their fingerprint, which may still be in the making, and
  /// what load_run says of others.
  struct Data {
    Data(std::string fingerprint_, std::string others_) : others(std::move(others_)) {
      std::promise<std::string> known;
      known.set_value(std::move(fingerprint_));
      fingerprint = known.get_future();
    }
    Data(std::shared_future<std::string> fingerprint_, std::string others_)
        : fingerprint(std::move(fingerprint_)), others(std::move(others_)) {}

    std::shared_future<std::string> fingerprint;
    std::string others;
  };

  /// The model's first values are a function of the seed alone.
  ModelTraining(const Settings& s, const typename Model::Options& model_options,
                const typename Optimizer::Options& optimizer_options, Data data, Device device)
      : settings(s),
        model((manual_seed(s.seed), model_options)),
        optimizer_(model.parameters(), optimizer_options),
        data_(std::move(data)),
        device_(device) {
    model.to(device);
  }
  virtual ~ModelTraining() = default;

  /// One update() at this learning rate.
  StepResult update_at(double learning_rate, const std::function<Tensor()>& loss) {
    optimizer_.set_learning_rate(learning_rate);
    const StepResult result = update(optimizer_, model, settings.clip, step_ + 1, loss);
    ++step_;
    return result;
  }
  /// One at the rate of RunSchedule, for settings with learning_rate and warmup.
  StepResult update_on_schedule(double progress, const std::function<Tensor()>& loss) {
    const RunSchedule schedule{settings.learning_rate, settings.warmup, settings.steps};
    return update_at(schedule.at(step_ + 1, progress), loss);
  }

  /// More that a checkpoint keeps: adds it to a record, and takes it from one that was read, or
  /// throws UsageError naming `path`.
  virtual void keep(RunRecord&) const {}
  virtual void take(const RunRecord&, const std::string&) {}

 private:
  RunRecord self() const {
    return {.settings = settings_to_notes(settings),
            .data = data_.fingerprint.get(),
            .by_clock = settings.steps == 0,
            .step = step_};
  }

  Optimizer optimizer_;
  const Data data_;
  const Device device_;
  int64_t step_ = 0;
};

}  // namespace stretto::examples
