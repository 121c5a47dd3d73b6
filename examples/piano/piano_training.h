// One training of a model of piano music: its data, its model, its losses, and the checkpoint that
// continues it bit for bit.
#pragma once

#include <string>
#include <vector>

#include "examples/common/training.h"
#include "examples/common/training_file.h"
#include "examples/piano/library.h"
#include "examples/piano/piano_settings.h"
#include "nn/optim.h"

namespace stretto::examples {

/// The model of `settings`, its first values a function of the seed alone.
nn::MusicTransformer::Options seeded_model(const PianoSettings& settings);

/// Mean negative log-likelihood in nats at each of `length` positions, over `windows` (at least
/// one); the model is evaluating meanwhile. Position i has i + 1 tokens to predict the next from.
/// Throws Interrupted when the user stops the program.
std::vector<double> loss_by_position(nn::MusicTransformer& model,
                                     const std::vector<PianoWindow>& windows, int64_t length,
                                     int64_t batch);

/// The mean of numbers [first, last); NaN of none.
double mean_of(const std::vector<double>& numbers, int64_t first, int64_t last);

/// Model, optimiser, and the place in the data.
class PianoTraining {
 public:
  PianoTraining(const PianoSettings& settings, std::vector<PianoPiece> pieces, Device device);

  /// One update on training_batch `step()`, at the rate of RunSchedule.
  StepResult train_step(double progress);

  int64_t step() const { return step_; }
  double learning_rate() const { return optimizer_.learning_rate(); }

  /// As save_run and load_run; load returns the seconds.
  void save(const std::string& path, double seconds) const;
  double load(const std::string& path);

  const PianoSettings settings;
  nn::MusicTransformer model;

 private:
  RunRecord record(double seconds) const;

  nn::AdamW optimizer_;
  const std::vector<PianoPiece> pieces_;
  const std::string fingerprint_;
  Device device_;
  int64_t step_ = 0;
};

}  // namespace stretto::examples
