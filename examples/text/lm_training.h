// One training of a language model: its settings, its model with the memory, and the checkpoint
// that continues it bit for bit.
#pragma once

#include <string>
#include <vector>

#include "examples/common/training.h"
#include "examples/text/lm_settings.h"
#include "examples/text/segments.h"
#include "nn/checkpoint.h"
#include "nn/optim.h"
#include "nn/transformer_xl.h"

namespace stretto::examples {

/// Model, optimiser, data, position in the data, and the memory of what came before it.
class LmTraining {
 public:
  /// `train` is what the checkpoint's fingerprint is of. Throws UsageError, naming `data`, where a
  /// column of a batch would be shorter than a segment.
  LmTraining(const LmSettings& settings, Tokenizer tokenizer, std::vector<int32_t> train,
             Device device, const std::string& data);

  /// One update on segment `step()`, as in RunSchedule and update(). At the start of an epoch the
  /// memory is empty.
  StepResult train_step(double progress);

  int64_t step() const { return step_; }
  double learning_rate() const { return optimizer_.learning_rate(); }
  double tokens_per_step() const { return double(settings.batch * settings.length); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Device device() const { return device_; }

  /// Keeps the memory and the vocabulary too; `seconds`, the time taken so far, where the schedule
  /// follows the clock. Throws Error, and leaves an older file as it is, when a parameter is not
  /// finite or writing fails.
  void save(const std::string& path, double seconds) const;
  /// Continues from a checkpoint of the same settings; returns its seconds. Throws Error or
  /// UsageError for any other file, and for one that was trained on other tokens.
  double load(const std::string& path);

  const LmSettings settings;
  nn::TransformerXL model;

 private:
  nn::Adam optimizer_;
  Tokenizer tokenizer_;
  const OrderedSegments segments_;
  const std::string fingerprint_;
  Device device_;
  int64_t step_ = 0;
  nn::TransformerXL::Memory memory_;
};

/// The vocabulary of a checkpoint.
Tokenizer saved_tokenizer(const LmSettings& settings, const nn::Metadata& notes,
                          const std::string& path);

}  // namespace stretto::examples
