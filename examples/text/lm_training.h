// One training of a language model: its settings, its model with the memory, and the checkpoint
// that continues it bit for bit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/text/lm_settings.h"
#include "examples/training/model_training.h"
#include "nn/data/segments.h"
#include "nn/models/transformer_xl.h"

namespace stretto::examples {

/// A language model with its text, and the memory of what came before where it stands in it.
class LmTraining final : public ModelTraining<nn::TransformerXL, nn::Adam, LmSettings> {
 public:
  /// `train` is what the checkpoint's fingerprint is of. Throws UsageError, naming `data`, where a
  /// column of a batch would be shorter than a segment.
  LmTraining(const LmSettings& settings, nn::Tokenizer tokenizer, nn::TokenStream train,
             Device device, const std::string& data);

  /// Of segment `step`; at the start of an epoch the memory is empty.
  Tensor loss(int64_t step) override;
  const nn::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  // The memory and the vocabulary.
  void keep(nn::TrainingState& state) const override;
  void take(const nn::TrainingState& state, const std::string& path) override;

  // Whether the segment continues a full memory, so that steps are alike and can be replayed. Not
  // where a position counts the tokens before: a replay has the number of the step it repeats.
  bool goes_on(int64_t step);
  void keep_in_place();

  nn::Tokenizer tokenizer_;
  const nn::OrderedSegments segments_;
  // Of each part of the batch that is this process's; of one that is not cut there is one.
  struct Remembered {
    nn::TransformerXL::Memory memory;
    std::optional<nn::TransformerXL::Memory> after;  // the segment of the last loss, which counts
                                                     // when the step is made
  };
  Remembered& remembered();
  std::vector<Remembered> parts_;
  Tensors place_;  // where a full memory is kept for steps that are replayed
};

/// The vocabulary of a checkpoint.
nn::Tokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                              const std::string& path);

}  // namespace stretto::examples
