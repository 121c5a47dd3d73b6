// Batches of whole documents: several documents share a row, so that little of it is padding.
#pragma once

#include <vector>

#include "batch.h"
#include "epoch_order.h"
#include "token_stream.h"

namespace stretto::nn {

/// Packs documents, for example songs, into rows of equal length. A document is divided only if it
/// is longer than a row. Rows are filled once, largest documents first, each into the fullest row
/// that has space for it (best-fit decreasing), and visited in a new random order in each epoch.
///
///     const nn::PackedBatches packed(documents, 16, 512, seed);
///     const nn::Batch batch = packed(step);
///     const Tensor logits = model(batch.inputs, {.segments = batch.segments});
///     cross_entropy(logits, batch.targets, {.ignore_index = nn::ignore_index}).backward();
class PackedBatches {
 public:
  /// Makes batches of `batch` rows of `length` positions. A document of n tokens has n − 1
  /// positions; documents of fewer than two tokens are left out. Unused positions have the token
  /// `pad`. Throws Error if batch or length is below 1 or no document has two tokens.
  PackedBatches(std::vector<TokenStream> documents, int64_t batch, int64_t length, uint64_t seed,
                int64_t pad = 0);
  /// Does the same with ids.
  PackedBatches(const std::vector<std::vector<int64_t>>& documents, int64_t batch, int64_t length,
                uint64_t seed, int64_t pad = 0)
      : PackedBatches(std::vector<TokenStream>(documents.begin(), documents.end()), batch, length,
                      seed, pad) {}
  /// Returns batch `step` on the CPU: tokens and next-token targets [batch, length], and segments
  /// [batch, length], which count the documents of a row from 0. Unused positions have the target
  /// ignore_index and a segment of their own. It depends only on the documents, seed and step.
  Batch operator()(int64_t step) const;
  /// Returns the number of rows in an epoch.
  int64_t n_rows() const { return int64_t(rows_.size()); }
  /// Returns the fraction of positions with a target.
  double fill() const;

 private:
  struct Piece {  // positions of a document: tokens first … first + positions, the last a target
    int64_t document, first, positions;
  };
  std::vector<TokenStream> documents_;
  int64_t batch_, length_, pad_;
  std::vector<std::vector<Piece>> rows_;
  uint64_t seed_;
};

}  // namespace stretto::nn
