// Pieces cut to the length of a model: at random to learn from, evenly to be judged by.
#pragma once

#include <string>
#include <vector>

#include "examples/piano/library.h"
#include "nn/data/batch.h"

namespace stretto::examples {

struct PianoCropOptions {
  int64_t batch = 8;
  int64_t length = 512;
  int64_t transpose = 6;  // largest transposition of a crop, in semitones
  int64_t stretch = 0;    // and played up to so many hundredths slower or faster (performance)
};

/// Batch `step` of an endless random order that depends on seed and step alone: pieces drawn by
/// their length, crops of length + 1 tokens that begin where PianoTokens::crop_start says, near
/// enough to the front to be whole where the piece is long enough. No pitch leaves the range. What
/// lies beyond the end of a piece is padding and not scored.
nn::Batch training_batch(const std::vector<PianoPiece>& pieces, const PianoTokens& tokens,
                         const PianoCropOptions& options, uint64_t seed, int64_t step);

/// Where a window begins.
struct PianoWindow {
  const PianoPiece* piece;
  int64_t start;
};

/// Windows of length + 1 tokens, one after the other in each piece, that begin as crops do; what is
/// left at the end of a piece is none. With most > 0 at most so many, evenly from all.
std::vector<PianoWindow> windows(const std::vector<PianoPiece>& pieces, const PianoTokens& tokens,
                                 int64_t length, int64_t most = 0);

/// Windows first … first + count − 1 as a batch of `length` tokens each.
nn::Batch window_batch(const std::vector<PianoWindow>& all, int64_t first, int64_t count,
                       int64_t length);

}  // namespace stretto::examples
