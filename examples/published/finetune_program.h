// The program finetune: trains a published language model on a text or on conversations, by LoRA or
// in all weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/published/finetune_data.h"
#include "examples/training/training_program.h"
#include "pretrained/pretrained.h"

namespace stretto::examples {

/// All settings are stored in the checkpoint.
struct FinetuneSettings : TrainingSettings {
  FinetuneSettings() {
    batch = 4;
    warmup = 10;
    steps = 200;
  }

  double held_out = 0.1;
  int64_t validation_tokens = 10'240;
  int64_t length = 256;
  bool full = false;
  int64_t rank = 8;
  double alpha = 16;
  std::string targets = "q,v";
  double lora_dropout = 0;
  double weight_decay = 0;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("held_out", s.held_out,
      "Fraction of the data, at its end, held out for validation; a text is cut at a line",
      require_fraction);
    f("validation_tokens", s.validation_tokens,
      "Number of validation tokens of a text that evaluations score (0: all)",
      between(0, INT64_MAX));
    each_of_run(s, f);
    f("full", s.full, "Train all weights instead of LoRA adapters", any_value);
    each_of_adapters(s, f);
    f("length", s.length,
      "Length of the training sequences in tokens, for conversations the largest (default: not "
      "more than the model was trained on)",
      between(1, 1 << 20));
    each_of_training(s, f);
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
  }
  template <class S, class F>
  static void each_of_adapters(S& s, F&& f) {
    f("rank", s.rank, "Rank of the adapters", between(1, 65536));
    f("alpha", s.alpha, "The adapters' output is multiplied by alpha / rank", require_positive);
    f("targets", s.targets,
      "Linear layers with an adapter, with commas between them: ends of their names in the model; "
      "all: every one in attention and feed-forward networks",
      any_value);
    f("lora_dropout", s.lora_dropout, "Dropout of the adapters' inputs", require_share);
  }
  bool operator==(const FinetuneSettings&) const = default;

  void check() const { check_each(*this); }
};

class FinetuneProgram : public TrainingProgram {
 public:
  FinetuneProgram() : TrainingProgram({.out = "out/finetune", .evaluate_every = 50}) {}

  void declare(OptionList& options);

 private:
  void resolve() override;
  int64_t count_parameters() override;
  void prepare() override;
  void begin() override;
  Tensor loss(int64_t step) override;
  double validate() override;
  void report() override;
  std::string annotation(double validation) const override;
  // In checkpoints: a checksum of the frozen weights, and the loss before training.
  void keep(nn::TrainingState& state) const override;
  void take(const nn::TrainingState& state, const std::string& path) override;

  void open_model();
  int64_t count_trained() const;
  std::vector<nn::NamedTensor> frozen() const;
  void save_model();

  FinetuneSettings settings;
  std::string model_path_, data_, conversations_, validation_, gguf_;
  bool merge_ = false;
  std::shared_ptr<nn::Pretrained> pretrained_;
  int64_t n_adapters_ = 0;
  std::unique_ptr<FinetuneData> learned_;
  std::string frozen_digest_;
  std::optional<double> before_;  // validation loss of the published model
};

}  // namespace stretto::examples
