#include "nn/data/packed_batches.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ops/create.h"

namespace stretto::nn {

PackedBatches::PackedBatches(std::vector<TokenStream> documents, int64_t batch, int64_t length,
                             uint64_t seed, int64_t pad)
    : documents_(std::move(documents)), batch_(batch), length_(length), pad_(pad), seed_(seed) {
  check(batch >= 1 && length >= 1, "PackedBatches", batch, " rows of ", length,
        " positions; both must be at least 1");
  std::vector<Piece> pieces;
  for (int64_t d = 0; d < int64_t(documents_.size()); ++d) {
    const int64_t positions = documents_[size_t(d)].size() - 1;
    for (int64_t first = 0; first < positions; first += length)
      pieces.push_back({d, first, std::min(length, positions - first)});
  }
  check(!pieces.empty(), "PackedBatches", documents_.size(),
        " documents, none of which has two tokens");
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.positions > b.positions; });
  std::multimap<int64_t, size_t> unused;  // positions of a row that are not used → row
  for (const Piece& piece : pieces) {
    const auto fullest = unused.lower_bound(piece.positions);
    size_t row = rows_.size();
    int64_t left = length - piece.positions;
    if (fullest == unused.end()) {
      rows_.emplace_back();
    } else {
      row = fullest->second;
      left = fullest->first - piece.positions;
      unused.erase(fullest);
    }
    rows_[row].push_back(piece);
    if (left > 0) unused.emplace(left, row);
  }
}

double PackedBatches::fill() const {
  int64_t used = 0;
  for (const auto& row : rows_)
    for (const Piece& piece : row) used += piece.positions;
  return double(used) / double(n_rows() * length_);
}

Batch PackedBatches::operator()(int64_t step) const {
  std::vector<int64_t> inputs, targets, segments;
  EpochOrder order(n_rows(), batch_, seed_);
  for (const int64_t row : order(step)) {
    const std::vector<Piece>& pieces = rows_[size_t(row)];
    const size_t end = inputs.size() + size_t(length_);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto& [document, first, positions] = pieces[i];
      const std::vector<int64_t> ids = documents_[size_t(document)].read(first, positions + 1);
      inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
      targets.insert(targets.end(), ids.begin() + 1, ids.end());
      segments.resize(inputs.size(), int64_t(i));
    }
    inputs.resize(end, pad_);
    targets.resize(end, ignore_index);
    segments.resize(end, int64_t(pieces.size()));
  }
  const Shape shape{batch_, length_};
  return {.inputs = tensor(inputs, shape, cpu),
          .targets = tensor(targets, shape, cpu),
          .segments = tensor(segments, shape, cpu)};
}

}  // namespace stretto::nn
