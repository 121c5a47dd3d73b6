// A TrainingRun of one model: a ModelTraining, or with --evaluate a checkpoint's model alone.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/blas.h"
#include "core/parallel.h"
#include "examples/training/training_run.h"
#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// `Training` is a ModelTraining (model_training.h) with StepResult train_step(double progress).
template <class Training>
class ModelRun : public TrainingRun {
 protected:
  using Model = decltype(Training::model);
  using TrainingRun::TrainingRun;

  Model& model() { return training_ ? training_->model : *evaluated_; }

  /// The Training of these arguments, where --resume left it if that is given. UsageError for what
  /// a checkpoint or the device refuses.
  template <class... Arguments>
  void make_training(Arguments&&... arguments) {
    as_usage([&] {
      training_.emplace(std::forward<Arguments>(arguments)...);
      if (!run_.resume.empty()) earlier_ = training_->load(run_.resume);
    });
  }
  /// The model of the checkpoint, for --evaluate; errors as above.
  void load_model(const typename Model::Options& options, Device device) {
    as_usage([&] {
      evaluated_.emplace(options);
      nn::load_checkpoint(run_.resume, *evaluated_, nullptr);
      evaluated_->to(device);
    });
  }

  /// "1000 parameters, 2 threads, OpenBLAS …"
  std::string model_and_machine() {
    return str(model().parameter_count(), " parameters, ", num_threads(), " threads, ",
               blas_description());
  }

  StepResult train_step(double progress) override { return training_->train_step(progress); }
  void save(const std::string& path, const RunProgress& progress) const override {
    training_->save(path, progress);
  }
  RunState state() const override {
    return {training_->step(), training_->settings.steps, training_->learning_rate()};
  }

  std::optional<Training> training_;

 private:
  std::optional<Model> evaluated_;
};

}  // namespace stretto::examples
