// The program lra: trains a classifier of long sequences on a task of the Long Range Arena, with
// any attention kernel and positional encoding, and measures its accuracy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/lra/lra_settings.h"
#include "examples/lra/sequences.h"
#include "examples/training/model_program.h"
#include "nn/data/epoch_order.h"

namespace stretto::examples {

/// The files of a task: TSV for ListOps, reviews and pairs, binary for images. Without files
/// ListOps is generated.
struct LraFiles {
  std::string data, validation, test;
};

struct LraData {
  LabeledSequences train, valid, test;       ///< test is empty if neither given nor generated
  std::vector<ListOpsExpression> generated;  ///< all expressions, if they were generated
};

/// Reads the data, or generates training, validation and test data in this order, as the
/// published program splits them. Without a validation file the fraction settings.held_out of
/// `data` is held out (hold_out(), sequences.h), chosen by settings.seed. Throws UsageError,
/// naming file or option.
LraData read_lra_data(const LraSettings& settings, const LraFiles& files);

struct LraScore {
  double loss = 0;  ///< mean, in nats
  Accuracy accuracy;
};

/// Scores `data`, or `most` examples of it (sample_rows() with settings.seed; 0: all), with the
/// model in evaluation mode. Throws Interrupted when the user stops the program.
LraScore evaluate(nn::SequenceClassifier& model, const LabeledSequences& data,
                  const LraSettings& settings, int64_t most = 0);

class LraProgram : public ModelProgram<LraSettings, nn::SequenceClassifier> {
 public:
  LraProgram() : ModelProgram({.out = "out/lra"}) {
    settings = lra_settings("listops");  // the defaults in --help
  }

  void declare(OptionList& options);

  /// Creates the model and its trainer for these examples.
  void start(LabeledSequences train);

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
  std::string missing_;  // a line for each split that lacks classes
  LabeledSequences train_;
  std::optional<nn::EpochOrder> order_;
};

}  // namespace stretto::examples
