// One training of a model: its settings, the model, the optimiser, how far it is, and the
// checkpoint that continues it bit for bit. What a program adds is its data and the loss of a step.
#pragma once

#include <future>
#include <string>
#include <utility>

#include "core/digest.h"
#include "core/random.h"
#include "examples/common/settings.h"
#include "nn/distributed/process_group.h"
#include "nn/optim/optim.h"
#include "nn/training/trainer.h"

namespace stretto::examples {

/// AdamW as Vaswani et al. 2017 set it (§5.3), of settings with learning_rate and weight_decay.
template <class Settings>
nn::AdamW::Options adamw_of(const Settings& s) {
  return {.lr = s.learning_rate, .beta2 = 0.98, .eps = 1e-9, .weight_decay = s.weight_decay};
}

/// Linear warm-up, then half a cosine to a hundredth of the peak: over the steps, or, where their
/// number is 0, over the share of the run's time that has passed. Of settings with learning_rate,
/// warmup and steps.
template <class Settings>
nn::WarmupCosine cosine_of(const Settings& s) {
  return {.peak = s.learning_rate,
          .warmup = s.warmup,
          .steps = s.steps,
          .floor = s.learning_rate / 100};
}

/// `Settings` is a struct as in settings.h, with seed, steps and clip.
template <class AnyModel, class Optimizer, class Settings>
class ModelTraining {
 public:
  using Model = AnyModel;

  int64_t step() const { return trainer.steps_done(); }

  /// Mean loss of batch `step` of the data, in nats per token.
  virtual Tensor loss(int64_t step) = 0;
  /// One update, as nn::Trainer::step.
  nn::StepResult train_step(double progress) {
    return trainer.step([&] { return loss(step()); }, progress);
  }

  /// Batches are cut into so many parts; 0: one, or of mpirun's processes what divides the batch,
  /// up to 8.
  void cut_batches(int64_t parts) {
    if (parts == 0 && nn::started_by_mpirun())
      for (parts = 8; settings.batch % parts != 0;) parts /= 2;
    trainer.options.parts = parts;
  }

  /// Throws Error or UsageError for parts that the batch or the processes do not divide into.
  void check_parts() const {
    const int64_t parts = trainer.parts();
    require(settings.batch % parts == 0, "--parts: a batch of " + as_text(settings.batch) +
                                             " rows cannot be cut into " + as_text(parts) +
                                             " parts");
    trainer.part_count();
  }

  /// Settings, data and weights, by name.
  std::vector<std::pair<std::string, std::string>> identity() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [name, value] : settings_to_notes(settings))
      all.emplace_back(option_of(name), value);
    Digest weights;
    for (const nn::NamedTensor& p : model.named_parameters()) {
      const Tensor values = p.tensor.detach().to(Device()).contiguous();
      weights.add(values.raw_data(), values.numel() * item_size(values.dtype()));
    }
    all.emplace_back("--parts", std::to_string(trainer.parts()));
    all.emplace_back("--sequence-parallel", std::to_string(trainer.options.sequence_parallel));
    all.emplace_back("the step", std::to_string(step()));
    all.emplace_back("the data", data_.fingerprint.get());
    all.emplace_back("the weights", weights.text());
    return all;
  }

  void save(const std::string& path) const {
    nn::TrainingState state{.notes = notes()};
    keep(state);
    trainer.save(path, std::move(state));
  }
  /// Continues from a checkpoint of the same settings. Throws Error or UsageError for any other
  /// file, and for one that was trained on other data.
  void load(const std::string& path) {
    const nn::Metadata notes = nn::load_training_state(path).notes;
    const auto saved = notes.find("data");
    require(saved != notes.end() && saved->second == data_.fingerprint.get(),
            path + ": was trained on other " + data_.others);
    take(trainer.load(path), path);
  }

  const Settings settings;
  Model model;
  Optimizer optimizer;
  nn::Trainer trainer;

 protected:
  /// What a checkpoint knows of the data: their fingerprint, which may still be in the making, and
  /// what load() says of others, with their option: "chorales than those of --data".
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

  /// The model's first values are a function of the seed alone. `tokens` are those of a step, for
  /// the speed.
  ModelTraining(const Settings& s, const typename Model::Options& model_options,
                const typename Optimizer::Options& optimizer_options, Data data, Device device,
                nn::Schedule schedule, int64_t tokens)
      : settings(s),
        model((manual_seed(s.seed), model_options)),
        optimizer(model.parameters(), optimizer_options),
        trainer(model, optimizer,
                {.steps = s.steps,
                 .schedule = std::move(schedule),
                 .clip = s.clip,
                 .tokens_per_step = double(tokens)}),
        data_(std::move(data)) {
    model.to(device).to(s.weights());
  }
  ~ModelTraining() = default;

  /// More that a checkpoint keeps: adds it to what is saved, and takes it from what was read, or
  /// throws UsageError naming `path`.
  virtual void keep(nn::TrainingState&) const {}
  virtual void take(const nn::TrainingState&, const std::string& /*path*/) {}

 private:
  nn::Metadata notes() const {
    nn::Metadata all = settings_to_notes(settings);
    all["data"] = data_.fingerprint.get();
    return all;
  }
  const Data data_;
};

}  // namespace stretto::examples
