// Crops of token sequences, to learn from.
#pragma once

#include "batch.h"
#include "token_stream.h"

namespace stretto::nn {

/// Crops of a stream that begin anywhere, with equal chances.
///
///     const nn::RandomCrops crops(tokens, 16, 128, seed);
///     const nn::Batch batch = crops(step);
class RandomCrops {
 public:
  /// The stream must have more than `length` tokens.
  RandomCrops(TokenStream tokens, int64_t batch, int64_t length, uint64_t seed);
  /// Batch `step` [batch, length] of an endless row: a function of seed and step alone.
  Batch operator()(int64_t step) const;

 private:
  TokenStream tokens_;
  int64_t batch_, length_;
  uint64_t seed_;
};

/// Inputs and targets of sequences of tokens: all but the last of each, and all but the first. Each
/// row has `length` positions (0: one less than the longest sequence); what is missing of a
/// sequence is `padding` that is not scored.
Batch next_token_batch(const std::vector<std::vector<int64_t>>& sequences, int64_t length = 0,
                       int64_t padding = 0);

}  // namespace stretto::nn
