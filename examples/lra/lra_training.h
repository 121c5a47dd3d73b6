// One training of a sequence classifier: its data, its model, its accuracy, and the checkpoint that
// continues it bit for bit.
#pragma once

#include <string>
#include <vector>

#include "examples/lra/lra_settings.h"
#include "examples/lra/sequences.h"
#include "examples/training/model_training.h"
#include "nn/data/epoch_order.h"

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
/// file to validate by, settings.held_out of `data` is held out (hold_out(), sequences.h), drawn by
/// settings.seed. Throws UsageError, naming file or option.
LraData read_lra_data(const LraSettings& settings, const LraFiles& files);

struct LraScore {
  double loss = 0;  // mean, nats
  Accuracy accuracy;
};

/// Scores `data`, or `most` of them (sample_rows() by settings.seed; 0: all); the model is
/// evaluating meanwhile. Throws Interrupted when the user stops the program.
LraScore evaluate(nn::SequenceClassifier& model, const LabelledSequences& data,
                  const LraSettings& settings, int64_t most = 0);

/// A classifier with the examples it learns from, and their order.
class LraTraining final : public ModelTraining<nn::SequenceClassifier, nn::AdamW, LraSettings> {
 public:
  LraTraining(const LraSettings& settings, LabelledSequences train, Device device);

  Tensor loss(int64_t step) override;

 private:
  const LabelledSequences train_;
  nn::EpochOrder order_;
};

}  // namespace stretto::examples
