// One training of a sequence classifier: its data, its model, its accuracy, and the checkpoint that
// continues it bit for bit.
#pragma once

#include <string>
#include <vector>

#include "examples/common/training.h"
#include "examples/common/training_file.h"
#include "examples/lra/lra_settings.h"
#include "examples/lra/sequences.h"
#include "nn/optim.h"

namespace stretto::examples {

/// A task's files: TSV of ListOps, reviews or pairs, or binary images. ListOps needs none.
struct LraFiles {
  std::string data, validation, test;
};

struct LraData {
  LabelledSequences train, valid, test;  // test is empty without its file, but for generated data
  std::vector<ListOpsExpression> generated;  // all of them, where they are
};

/// Reads, or generates: train, then valid, then test, as the published program cuts them. Without a
/// file to validate by, the end of `data` is held out. Throws UsageError, naming file or option.
LraData read_lra_data(const LraSettings& settings, const LraFiles& files);

struct LraScore {
  double loss = 0;  // mean, nats
  Accuracy accuracy;
};

/// Of the first `most` (0: all), in the order of the data; the model is evaluating meanwhile.
/// Throws Interrupted when the user stops the program.
LraScore evaluate(nn::SequenceClassifier& model, const LabelledSequences& data,
                  const LraSettings& settings, int64_t most = 0);

/// Model, optimiser and the order of the data.
class LraTraining {
 public:
  LraTraining(const LraSettings& settings, LabelledSequences train, Device device);

  /// One update on batch `step()` of EpochOrder, at LraSettings::rate.
  StepResult train_step(double progress);

  int64_t step() const { return step_; }
  double learning_rate() const { return optimizer_.learning_rate(); }
  /// Ids of the last batch, padding included.
  double tokens_per_step() const { return tokens_; }

  /// As save_run and load_run; load returns the seconds.
  void save(const std::string& path, double seconds) const;
  double load(const std::string& path);

  const LraSettings settings;
  nn::SequenceClassifier model;

 private:
  RunRecord record(double seconds) const;

  nn::AdamW optimizer_;
  const LabelledSequences train_;
  EpochOrder order_;
  const std::string fingerprint_;
  Device device_;
  int64_t step_ = 0;
  double tokens_ = 0;
};

}  // namespace stretto::examples
