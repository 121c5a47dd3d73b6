// The program train_lm: trains a language model on a text, with any positional encoding, and
// measures how much context the model uses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/text/lm_evaluation.h"
#include "examples/text/lm_settings.h"
#include "examples/training/training_program.h"
#include "nn/data/contiguous_batches.h"
#include "nn/data/packed_batches.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

class LmProgram : public TrainingProgram {
 public:
  LmProgram() : TrainingProgram({.out = "out/lm"}) {}

  void declare(OptionList& options);

  /// Creates the model for the tokenizer's vocabulary, and its trainer for the text `train`. Throws
  /// UsageError, naming `data`, if a column of a batch would be shorter than a segment.
  void start(nn::TokenStream train, const std::string& data);

  LmSettings settings;
  nn::LanguageModel* model = nullptr;
  std::optional<nn::VocabularyTokenizer> tokenizer;

 private:
  void resolve() override;
  void resume();
  void check_evaluation() const;
  int64_t count_parameters() override;
  void prepare() override;
  void set_prompt();
  void begin() override;
  /// The loss of segment `step`; the memory is cleared at the start of an epoch.
  Tensor loss(int64_t step) override;
  double validate() override;
  void report() override;
  // In checkpoints: the memory and the vocabulary.
  void keep(nn::TrainingState& state) const override;
  void take(const nn::TrainingState& state, const std::string& path) override;

  bool words() const { return settings.tokens == "words"; }
  std::string name() const { return data_.empty() ? "the generated text" : data_; }
  CorpusOptions corpus() const;

  // True if the segment continues a full memory, so that steps are alike and one CUDA graph can be
  // replayed. False if the positional encoding counts the preceding tokens: a replay would use the
  // count of the captured step.
  bool goes_on(int64_t step);
  void keep_in_place();

  Tensor packed_loss(int64_t step);
  nn::PackedBatches packed(const nn::TokenStream& train, const std::string& data) const;
  void show_bigram();
  Evaluation scored(const nn::TokenStream& tokens, const EvaluationOptions& options);
  double shown(double nats) const;
  std::string unit() const;
  std::string score(double nats) const;
  void write_evaluations(const std::vector<Evaluation>& all);
  void write_text();

  std::string preset_name_, data_, validation_;
  int64_t validation_tokens_ = 100'000;
  std::string eval_length_, eval_memory_;
  int64_t eval_stride_ = 0, eval_clamp_ = 0, eval_batch_ = 8;
  bool eval_same_length_ = false;
  int64_t generate_ = 0;
  std::string prompt_;
  double temperature_ = 1, top_p_ = 1;

  LmPreset preset_;
  nn::Metadata saved_notes_;  // metadata of the checkpoint of --resume
  nn::TokenStream train_, valid_;
  std::string generated_, note_;  // see Corpus
  MappedFiles mapped_;
  std::shared_future<std::string> train_print_, valid_print_;  // fingerprints
  std::vector<int64_t> prompt_tokens_;
  CountingInBackground counting_;

  std::optional<nn::ContiguousBatches> segments_;
  std::optional<nn::PackedBatches> packed_;  // with --pack
  // The memory of a local micro-batch, or of the whole batch if it is not split.
  struct Remembered {
    nn::LanguageModel::Cache memory;
    std::optional<nn::LanguageModel::Cache> after;  // includes the segment of the last loss;
                                                    // becomes `memory` after the step
  };
  Remembered& remembered();
  std::vector<Remembered> parts_;
  Tensors place_;  // fixed storage of a full memory, for replayed CUDA graphs
};

/// Returns the vocabulary stored in a checkpoint.
nn::VocabularyTokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                                        const std::string& path);

}  // namespace stretto::examples
