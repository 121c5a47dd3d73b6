// Batches of random crops of token streams, and batches of sequences of different lengths.
#pragma once

#include <vector>

#include "batch.h"
#include "token_stream.h"

namespace stretto::nn {

/// Random crops of a stream. All start positions have equal probability.
///
///     const nn::RandomCrops crops(tokens, 16, 128, seed);
///     const nn::Batch batch = crops(step);
class RandomCrops {
 public:
  /// Makes batches of `batch` crops of `length` positions. The stream must have more than `length`
  /// tokens; otherwise throws Error.
  RandomCrops(TokenStream tokens, int64_t batch, int64_t length, uint64_t seed);
  /// Returns batch `step` [batch, length] with next-token targets, on the CPU. It depends only on
  /// seed and step.
  Batch operator()(int64_t step) const;

 private:
  TokenStream tokens_;
  int64_t batch_, length_;
  uint64_t seed_;
};

/// Random crops of several streams of equal length, at the same positions in all: words and their
/// tags, a melody and its chords, tokens and several targets per token.
///
///     const nn::AlignedCrops crops({notes, chords}, 16, 128, seed);
///     const Tensors batch = crops(step);  // notes [16, 128], chords [16, 128]
class AlignedCrops {
 public:
  /// Throws Error unless all streams have the same number of tokens, at least `length`.
  AlignedCrops(std::vector<TokenStream> streams, int64_t batch, int64_t length, uint64_t seed);
  /// Returns i64 [batch, length] for each stream, on the CPU. It depends only on seed and step.
  Tensors operator()(int64_t step) const;

 private:
  std::vector<TokenStream> streams_;
  int64_t batch_, length_;
  uint64_t seed_;
};

/// Rows of tokens padded to the length of the longest one.
struct PaddedRows {
  Tensor tokens;   ///< i64 [B, longest row].
  Tensor padding;  ///< bool, the same shape; true at padding (AttentionMask::key_padding).
  /// Returns the rows on a device.
  PaddedRows to(Device device) const { return {tokens.to(device), padding.to(device)}; }
};

/// Returns rows of different lengths as one tensor on the CPU, padded at their ends with the token
/// `pad` to `length` positions (0: those of the longest row). Throws Error if a row is longer.
PaddedRows pad_rows(const std::vector<std::vector<int64_t>>& rows, int64_t length = 0,
                    int64_t pad = 0);

/// Returns sequences of different lengths and one class for each as a batch on the CPU: inputs and
/// padding as from pad_rows(), targets i64 [B]. Throws Error unless there is a class per sequence.
Batch classification_batch(const std::vector<std::vector<int64_t>>& sequences,
                           const std::vector<int64_t>& classes, int64_t length = 0,
                           int64_t pad = 0);
/// As above with one class, a tag, for each token: targets i64 [B, L], ignore_index at padding.
/// Throws Error unless there is a tag per token.
Batch tagging_batch(const std::vector<std::vector<int64_t>>& sequences,
                    const std::vector<std::vector<int64_t>>& tags, int64_t length = 0,
                    int64_t pad = 0);

/// Returns sequences as a batch on the CPU: the inputs are the tokens of a sequence, the targets
/// the tokens after them. Rows have `length` positions (0: one less than the longest sequence), so
/// the last token of a sequence with length + 1 tokens is a target only. A shorter sequence has
/// its last token among the inputs, with ignore_index as target, and is then padded with `pad` and
/// ignore_index; Batch::padding stays undefined, because causal attention does not see the end
/// of a row.
/// Throws Error if a sequence is too long, or if length is 0 and none has two tokens.
Batch next_token_batch(const std::vector<std::vector<int64_t>>& sequences, int64_t length = 0,
                       int64_t pad = 0);

/// A prompt with the answer that a model shall give.
struct PromptedAnswer {
  std::vector<int64_t> prompt;  ///< Tokens that are given, at least one.
  std::vector<int64_t> answer;  ///< Tokens to be learned, with the one that ends the answer.
};
/// Returns prompts, followed by their answers, as next_token_batch() does. Only the tokens of the
/// answers are targets. Throws Error for an empty prompt, and as next_token_batch().
Batch prompted_batch(const std::vector<PromptedAnswer>& examples, int64_t length = 0,
                     int64_t pad = 0);

}  // namespace stretto::nn
