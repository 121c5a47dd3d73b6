// Chorales as token sequences: voices S A T B within a sixteenth, then the next sixteenth (Huang
// et al. 2018, §4.1.1). A token is a pitch or silence; a piece begins after `start` and ends with
// `end`.
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

/// The tokens of a piece, transposed by `semitones`, without start and end. Every pitch must stay
/// in 0 … 127.
std::vector<int64_t> to_tokens(const Chorale& chorale, int semitones = 0);

/// The piece that tokens stand for: whole steps up to the first token that is none of a piece.
Chorale to_chorale(const std::vector<int64_t>& tokens);

struct CropOptions {
  int64_t batch = 8;
  int64_t length = 512;
  int transpose = 5;  // each crop is moved by −transpose … transpose semitones
};

/// Batch `step` of an endless random order that depends on seed and step alone: pieces drawn by
/// their length, crops that begin on a sixteenth. What lies beyond the end of a piece is not
/// scored; the end token is.
nn::Batch training_batch(const std::vector<Chorale>& pieces, const CropOptions& options,
                         uint64_t seed, int64_t step);

/// Calls `score` with batches that score every token of the pieces exactly once (the end token
/// not), each with as much context as there is, up to `length` tokens: the first window of a piece
/// scores all its tokens, later ones their last `stride`. stride = length is cheapest, 1 gives
/// every token the most context. Throws std::invalid_argument unless 1 <= stride <= length.
void scoring_batches(const std::vector<Chorale>& pieces, int64_t length, int64_t stride,
                     int64_t batch, const std::function<void(const nn::Batch&)>& score);

}  // namespace stretto::examples
