// One training of a model on grooves, its loss, and grooves that it continues.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/common/training.h"
#include "examples/groove/groove_data.h"
#include "examples/groove/groove_settings.h"
#include "nn/music_transformer.h"

namespace stretto::examples {

/// Mean negative log-likelihood in nats per token. Throws Interrupted when the user stops the
/// program, std::invalid_argument for no sequences.
double groove_loss(nn::MusicTransformer& model, const std::vector<GrooveSequence>& sequences,
                   int64_t batch, bool published_eos);

/// Model, optimiser, data and position in the data of a run; see ChoraleTraining.
class GrooveTraining {
 public:
  GrooveTraining(const GrooveSettings& settings, std::vector<GrooveSource> songs, Device device);

  StepResult train_step(double progress);
  int64_t step() const { return step_; }
  double learning_rate() const { return optimizer_.learning_rate(); }
  void save(const std::string& path, double seconds) const;
  double load(const std::string& path);

  nn::MusicTransformer model;
  const GrooveSettings settings;

 private:
  nn::AdamW optimizer_;
  const std::vector<GrooveSource> songs_;
  const std::string fingerprint_;
  Device device_;
  int64_t step_ = 0;
};

struct GrooveSampling {
  int64_t tokens = 384;      // new ones, at most
  double temperature = 0.6;  // as published
  uint64_t seed = 1;
  int64_t context = 0;  // > 0: attention that keeps keys sees only so many tokens
};

/// The prompt and what the model writes after it, one token at a time, as GrooveGrammar allows. The
/// result has the prompt's instruments and tempo; notes that have no end when the tokens run out
/// are lost. Throws Interrupted as above.
Groove continue_groove(nn::MusicTransformer& model, const Groove& prompt,
                       const GrooveSampling& options);

}  // namespace stretto::examples
