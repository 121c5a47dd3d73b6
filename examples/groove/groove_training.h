// One training of a model on grooves, its loss, and grooves that it continues.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/groove/groove_data.h"
#include "examples/groove/groove_grammar.h"
#include "examples/groove/groove_settings.h"
#include "examples/training/model_training.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// Mean negative log-likelihood in nats per token; NaN for no sequences. Throws Interrupted when
/// the user stops the program.
double groove_loss(nn::LanguageModel& model, const std::vector<GrooveSequence>& sequences,
                   int64_t batch, bool published_eos);

class GrooveTraining final : public ModelTraining<nn::LanguageModel, nn::AdamW, GrooveSettings> {
 public:
  GrooveTraining(const GrooveSettings& settings, std::vector<GrooveSource> songs, Device device);

  Tensor loss(int64_t step) override;

 private:
  const std::vector<GrooveSource> songs_;
};

struct GrooveSampling {
  int64_t tokens = 300;      // new ones, at most
  double temperature = 0.6;  // as published
  uint64_t seed = 1;
  ShiftRule shifts = ShiftRule::as_encoded;
  int64_t limit = 0;  // of the cache
};

/// The prompt and what the model writes after it, one token at a time, as GrooveGrammar allows. The
/// result has the prompt's instruments and tempo; notes that have no end when the tokens run out
/// are lost. Throws Interrupted as above.
Groove continue_groove(nn::LanguageModel& model, const Groove& prompt,
                       const GrooveSampling& options);

}  // namespace stretto::examples
