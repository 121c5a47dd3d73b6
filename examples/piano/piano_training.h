// One training of a model of piano music: its data, its model, its losses, and the checkpoint that
// continues it bit for bit.
#pragma once

#include <string>
#include <vector>

#include "examples/piano/library.h"
#include "examples/piano/piano_settings.h"
#include "examples/training/model_training.h"

namespace stretto::examples {

/// Mean negative log-likelihood in nats at each of `length` positions, over `windows` (at least
/// one); the model is evaluating meanwhile. Position i has i + 1 tokens to predict the next from.
/// Throws Interrupted when the user stops the program.
std::vector<double> loss_by_position(nn::LanguageModel& model,
                                     const std::vector<PianoWindow>& windows, int64_t length,
                                     int64_t batch);

/// The mean of numbers [first, last); NaN of none.
double mean_of(const std::vector<double>& numbers, int64_t first, int64_t last);

/// A model with the pieces it learns from.
class PianoTraining final : public ModelTraining<nn::LanguageModel, nn::AdamW, PianoSettings> {
 public:
  PianoTraining(const PianoSettings& settings, std::vector<PianoPiece> pieces, Device device);

  Tensor loss(int64_t step) override;

 private:
  const std::vector<PianoPiece> pieces_;
};

}  // namespace stretto::examples
