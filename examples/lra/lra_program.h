// A program that trains a classifier of long sequences on a task of the Long Range Arena, with any
// attention and position, and measures its accuracy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/lra/lra_settings.h"
#include "examples/lra/sequences.h"
#include "examples/training/training_program.h"
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

class LraProgram : public TrainingProgram {
 public:
  LraProgram() : TrainingProgram({.out = "out/lra"}) {}

  void declare(OptionList& options);

  /// Makes the model and its trainer with these examples.
  void start(LabelledSequences train);

  LraSettings settings = lra_settings("listops");  // what --help shows
  nn::SequenceClassifier* model = nullptr;

 private:
  void resolve() override;
  int64_t count_parameters() override;
  void prepare() override;
  void note_missing_classes();
  void begin() override;
  void write_data();
  Tensor loss(int64_t step) override;
  double validate() override;
  void report() override;

  bool writes_data() const { return write_data_ && paths_.data.empty(); }

  LraFiles paths_;
  bool small_ = false;
  bool write_data_ = false;
  int64_t validation_examples_ = 200;

  LraData data_;
  int64_t n_train_ = 0;
  std::string missing_;  // classes, a line for each part that lacks some
  LabelledSequences train_;
  std::optional<nn::EpochOrder> order_;
};

}  // namespace stretto::examples
