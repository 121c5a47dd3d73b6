// Crops of token sequences, to learn from, and rows of different lengths as one tensor.
#pragma once

#include <vector>

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

/// Crops of several streams of equal length, cut at the same places: words and their tags, a melody
/// and its chords, tokens and several targets of each.
///
///     const nn::AlignedCrops crops({notes, chords}, 16, 128, seed);
///     const Tensors batch = crops(step);  // notes [16, 128], chords [16, 128]
class AlignedCrops {
 public:
  /// The streams must have at least `length` tokens, all equally many.
  AlignedCrops(std::vector<TokenStream> streams, int64_t batch, int64_t length, uint64_t seed);
  /// Returns i64 [batch, length] of each stream, on the CPU: a function of seed and step alone.
  Tensors operator()(int64_t step) const;

 private:
  std::vector<TokenStream> streams_;
  int64_t batch_, length_;
  uint64_t seed_;
};

struct PaddedRows {
  Tensor tokens;   ///< i64 [B, longest row]
  Tensor padding;  ///< bool, the same shape: true where no token is (AttentionMask::key_padding)
  PaddedRows to(Device device) const { return {tokens.to(device), padding.to(device)}; }
};

/// Returns rows of different lengths as one tensor on the CPU, filled up with `padding` at their
/// ends to the longest.
PaddedRows pad_rows(const std::vector<std::vector<int64_t>>& rows, int64_t padding = 0);

/// Inputs and targets of sequences of tokens: all but the last of each, and all but the first. Each
/// row has `length` positions (0: one less than the longest sequence); what is missing of a
/// sequence is `padding` that is not scored.
Batch next_token_batch(const std::vector<std::vector<int64_t>>& sequences, int64_t length = 0,
                       int64_t padding = 0);

}  // namespace stretto::nn
