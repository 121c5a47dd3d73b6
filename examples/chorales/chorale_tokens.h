// Chorales as token sequences: voices S A T B of a sixteenth, then of the next one (Huang et al.
// 2018, §4.1.1). A token is a pitch or silence; a piece begins after `start` and ends with `end`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"
#include "examples/chorales/chorale.h"
#include "nn/data/batch.h"

namespace stretto::examples {

inline constexpr int64_t start_token = 0, end_token = 1, silence_token = 2, pitch_token = 3;
inline constexpr int64_t chorale_vocabulary = pitch_token + 128;  // pitches 0 … 127

/// Returns the tokens of a piece, transposed by `semitones`, without start and end. Every pitch
/// must stay in 0 … 127.
std::vector<int64_t> to_tokens(const Chorale& chorale, int semitones = 0);

/// Returns the piece encoded by tokens: complete steps up to the first token that
/// belongs to no piece.
Chorale to_chorale(const std::vector<int64_t>& tokens);

struct CropOptions {
  int64_t batch = 8;
  int64_t length = 512;
  int transpose = 5;  ///< each crop is transposed by −transpose … transpose semitones
};

/// Returns batch `step` of an endless random sequence that depends only on seed and step. Pieces
/// are chosen with a probability proportional to their length; crops begin on a sixteenth.
/// The end token is scored; positions after it are not scored.
nn::Batch training_batch(const std::vector<Chorale>& pieces, const CropOptions& options,
                         uint64_t seed, int64_t step);

/// Calls `score` with batches that score every token of the pieces exactly once (except the end
/// token), each with up to `length` tokens of context: the first window of a piece scores all its
/// tokens, each later window its last `stride` tokens. stride = length is cheapest; 1 gives every
/// token the most context. Throws std::invalid_argument unless 1 <= stride <= length.
void scoring_batches(const std::vector<Chorale>& pieces, int64_t length, int64_t stride,
                     int64_t batch, const std::function<void(const nn::Batch&)>& score);

}  // namespace stretto::examples
