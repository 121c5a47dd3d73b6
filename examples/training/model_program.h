// Training programs whose settings describe their model, and those of decoder-only language models.
// The smallest one, in one file with its data set: programs/train_tokens.cpp.
#pragma once

#include <utility>

#include "examples/common/command_line.h"
#include "examples/training/training_program.h"
#include "nn/models/language_model.h"
#include "nn/models/sampling.h"

namespace stretto::examples {

/// `Settings` is a TrainingSettings with each() (settings.h); check(), which throws UsageError for
/// settings that cannot be trained; model(), the options of the Model; and least_memory(), a lower
/// bound of the bytes that training takes.
template <class Settings, class Model>
class ModelProgram : public TrainingProgram {
 public:
  using TrainingProgram::TrainingProgram;

  Settings settings;
  Model* model = nullptr;

 protected:
  /// Sets the settings: `preset`, overridden by the command line. A resumed run uses the settings
  /// of its checkpoint; options on the command line must equal them, and with `all` so must the
  /// whole preset.
  void take_settings(const Settings& preset = {}, bool all = false) {
    take_preset(settings, settings_to_metadata(preset), run_);
    if (!run_.resume.empty())
      take_saved(settings, saved_settings<Settings>(run_, program_name()), run_, all);
    settings.check();
  }
  void resolve() override { take_settings(); }
  int64_t count_parameters() override { return nn::count_parameters<Model>(settings.model()); }
  /// Creates the model and, unless it is only evaluated, its trainer, with these options of AdamW
  /// (optimizer()), for `data` and `tokens` tokens per step.
  void create(const nn::AdamW::Options& adam, Data data, int64_t tokens) {
    model = make_model<Model>(settings.model(), settings);
    if (!run_.report_only)
      make_trainer(optimizer(adam), schedule_of(settings), std::move(data), tokens);
  }
};

/// Declares --temperature and --top-p.
inline void declare_sampling(OptionList& options, nn::SamplingOptions& sampling) {
  options("temperature", sampling.temperature, "Sampling temperature (0: greedy)",
          require_not_negative);
  options("top_p", sampling.top_p,
          "Nucleus sampling: cumulative probability of the candidate tokens", require_top_p);
}

/// A program that trains a LanguageModel on batches of tokens.
template <class Settings>
class TokenProgram : public ModelProgram<Settings, nn::LanguageModel> {
 public:
  using ModelProgram<Settings, nn::LanguageModel>::ModelProgram;

 protected:
  /// Returns training batch i, which depends only on the settings, the data and i.
  virtual nn::Batch training(int64_t i) = 0;
  Tensor loss(int64_t step) override {
    const nn::Batch batch =
        this->trainer().stage_batch(step, [this](int64_t i) { return training(i); });
    nn::ForwardContext forward =
        nn::begin_forward(this->trainer().sequence_group(), batch.inputs.size(1));
    forward.segments = batch.segments;
    return this->model->loss(this->model->hidden(batch.inputs, forward), batch.targets,
                             {.ignore_index = nn::ignore_index});
  }
};

}  // namespace stretto::examples
