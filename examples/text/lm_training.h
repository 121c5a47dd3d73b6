// One training of a language model: its settings, its model with the memory, and the checkpoint
// that continues it bit for bit.
#pragma once

#include <string>
#include <vector>

#include "examples/text/lm_settings.h"
#include "examples/text/segments.h"
#include "examples/training/model_training.h"
#include "nn/models/transformer_xl.h"

namespace stretto::examples {

/// A language model with its text, and the memory of what came before where it stands in it.
class LmTraining : public ModelTraining<nn::TransformerXL, nn::Adam, LmSettings> {
 public:
  /// `train` is what the checkpoint's fingerprint is of. Throws UsageError, naming `data`, where a
  /// column of a batch would be shorter than a segment.
  LmTraining(const LmSettings& settings, Tokenizer tokenizer, TokenStream train, Device device,
             const std::string& data);

  /// One update on segment `step()`, as in RunSchedule and update(). At the start of an epoch the
  /// memory is empty.
  StepResult train_step(double progress);

  double tokens_per_step() const { return double(settings.batch * settings.length); }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  // The memory and the vocabulary.
  void keep(RunRecord& record) const override;
  void take(const RunRecord& record, const std::string& path) override;

  Tokenizer tokenizer_;
  const OrderedSegments segments_;
  nn::TransformerXL::Memory memory_;
};

/// The vocabulary of a checkpoint.
Tokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                          const std::string& path);

}  // namespace stretto::examples
