// Pieces cut to the length of a model: random crops for training, regular windows for evaluation.
#pragma once

#include <string>
#include <vector>

#include "examples/piano/library.h"
#include "nn/data/batch.h"

namespace stretto::examples {

struct PianoCropOptions {
  int64_t batch = 8;
  int64_t length = 512;
  int64_t transpose = 6;  ///< largest transposition of a crop, in semitones
  int64_t stretch = 0;    ///< largest change of the speed of a crop, in percent (performance)
  bool infill = false;    ///< half of the crops have 1 to 4 bars moved to their end (infill.h)
  bool from_bar = true;   ///< crops begin at Tokenizer::crop_start, else anywhere
};

/// Returns batch `step` of an endless random sequence that depends only on seed and step. Pieces
/// are chosen with a probability proportional to their length. Crops of length + 1 tokens are
/// complete if the piece is long enough. Transposed pitches stay in range. Positions past the end
/// of a piece are padding and not scored.
nn::Batch training_batch(const std::vector<PianoPiece>& pieces, const music::Tokenizer& tokens,
                         const PianoCropOptions& options, uint64_t seed, int64_t step);

/// Transposes each piece of a packed batch by a random interval of at most `transpose` semitones,
/// which depends only on seed and step. Pitches stay in range.
void transpose_packed(nn::Batch& batch, const music::Tokenizer& tokens, int64_t transpose,
                      uint64_t seed, int64_t step);

/// The piece and first token of a window.
struct PianoWindow {
  const PianoPiece* piece;
  int64_t start;
};

/// Returns consecutive windows of length + 1 tokens in each piece, which begin as crops do; the
/// remainder of a piece is not used. With most > 0 returns at most `most` windows, evenly spaced.
std::vector<PianoWindow> windows(const std::vector<PianoPiece>& pieces,
                                 const music::Tokenizer& tokens, int64_t length, int64_t most = 0);

/// Returns the windows first … first + count − 1 as a batch of `length` tokens each.
nn::Batch window_batch(const std::vector<PianoWindow>& all, int64_t first, int64_t count,
                       int64_t length);

}  // namespace stretto::examples
