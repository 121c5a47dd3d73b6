// A program that trains one model: a ModelTraining, or with --evaluate a checkpoint's model alone.
#pragma once

#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "core/cpu.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"
#include "examples/common/words.h"
#include "examples/training/training_run.h"
#include "nn/init.h"
#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// `Training` is a ModelTraining (model_training.h).
template <class Training>
class ModelRun : public TrainingRun {
 protected:
  using Model = typename Training::Model;
  using TrainingRun::TrainingRun;

  Model& model() { return training_ ? training_->model : *evaluated_; }

  /// The Training of these arguments, where --resume left it if that is given. UsageError for what
  /// a checkpoint or the device refuses.
  template <class... Arguments>
  void make_training(Arguments&&... arguments) {
    as_usage([&] {
      training_.emplace(std::forward<Arguments>(arguments)...);
      training_->cut_batches(run_.parts);
      training_->trainer.options.shard_optimizer = run_.shard_optimizer;
      training_->trainer.options.sequence_parallel = run_.sequence_parallel;
      if (!run_.resume.empty()) training_->load(run_.resume);
      training_->check_parts();
    });
  }
  /// The model of the checkpoint, for --evaluate; errors as above.
  void load_model(const typename Model::Options& options, DType dtype, Device device) {
    as_usage([&] {
      evaluated_.emplace(options);
      evaluated_->to(dtype);
      nn::load_checkpoint(run_.resume, *evaluated_, nullptr);
      evaluated_->to(device);
    });
  }

  /// "1,000 parameters, 1 thread, AVX-512 …"
  std::string model_and_machine() {
    return counted(model().parameter_count(), "parameter") + ", " +
           counted(num_threads(), "thread") + ", " + cpu_description();
  }
  /// "Saved out/checkpoint.safetensors after 100 steps".
  std::string saved() {
    return str("Saved ", checkpoint(), " after ", training_->step(), " steps");
  }

  nn::Trainer& trainer() override { return training_->trainer; }
  Tensor loss(int64_t step) override { return training_->loss(step); }
  void save() override { training_->save(path("checkpoint.safetensors")); }
  NamedTexts identity() override { return training_->identity(); }
  nn::Metadata notes() override { return settings_to_notes(training_->settings); }
  std::string about() override { return model_and_machine(); }

  std::optional<Training> training_;

 private:
  std::optional<Model> evaluated_;
};

/// For --parameters: the number is the last line.
template <class Model>
int print_parameters(const typename Model::Options& options, const std::string& about = "") {
  std::cout << about << (about.empty() ? "" : "\n") << nn::count_parameters<Model>(options)
            << std::endl;
  return 0;
}

}  // namespace stretto::examples
