// N-gram baselines: losses of models that only count, which a trained model has to beat.
#pragma once

#include <vector>

#include "examples/chorales/chorale.h"

namespace stretto::examples {

// All three count symbols (a pitch, or silence) in the pieces of `train` and return the mean
// negative log-likelihood, in nats per token, of all tokens (four per step) of `valid`. A symbol
// with count c out of n has probability (c + 1) / (n + V), where V is the number of distinct
// symbols in `train`. With `first_voice` > 0 only that voice and the lower ones are counted and
// predicted. They throw std::invalid_argument if either list has no steps.

/// One table for all voices.
double unigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                    int first_voice = 0);

/// One table per voice.
double voice_unigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                          int first_voice = 0);

/// One table per voice and previous symbol of that voice. The first step of a piece is predicted
/// from the voice's table over all steps.
double voice_bigram_loss(const std::vector<Chorale>& train, const std::vector<Chorale>& valid,
                         int first_voice = 0);

}  // namespace stretto::examples
