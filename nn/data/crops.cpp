#include "nn/data/crops.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "nn/data/draws.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

Draws draws_of(uint64_t seed, int64_t step) {
  return {seed ^ 0x63726f7073ull, step};  // differs from the keys of the program's random state
}

}  // namespace

RandomCrops::RandomCrops(TokenStream tokens, int64_t batch, int64_t length, uint64_t seed)
    : tokens_(std::move(tokens)), batch_(batch), length_(length), seed_(seed) {
  check(batch >= 1 && length >= 1 && tokens_.size() > length, "RandomCrops", batch, " crops of ",
        length, " from ", tokens_.size(),
        " tokens; batch and length must be ≥ 1, and the stream longer than a crop");
}

Batch RandomCrops::operator()(int64_t step) const {
  Draws draws = draws_of(seed_, step);
  std::vector<std::vector<int64_t>> crops(static_cast<size_t>(batch_));
  for (std::vector<int64_t>& crop : crops)
    crop = tokens_.read(draws.below(tokens_.size() - length_), length_ + 1);
  return next_token_batch(crops);
}

AlignedCrops::AlignedCrops(std::vector<TokenStream> streams, int64_t batch, int64_t length,
                           uint64_t seed)
    : streams_(std::move(streams)), batch_(batch), length_(length), seed_(seed) {
  const char* op = "AlignedCrops";
  check(!streams_.empty(), op, "no streams; needs at least one");
  const int64_t size = streams_[0].size();
  for (const TokenStream& stream : streams_)
    check(stream.size() == size, op, "streams of ", size, " and ", stream.size(),
          " tokens; all must be equally long");
  check(batch >= 1 && length >= 1 && size >= length, op, batch, " crops of ", length, " from ",
        size, " tokens; batch and length must be ≥ 1, and streams at least as long as a crop");
}

Tensors AlignedCrops::operator()(int64_t step) const {
  Draws draws = draws_of(seed_, step);
  std::vector<std::vector<int64_t>> crops(streams_.size());
  for (std::vector<int64_t>& crop : crops) crop.resize(size_t(batch_ * length_));
  for (int64_t row = 0; row < batch_; ++row) {
    const int64_t begin = draws.below(streams_[0].size() - length_ + 1);
    for (size_t i = 0; i < streams_.size(); ++i)
      streams_[i].read(begin, length_, crops[i].data() + row * length_);
  }
  Tensors batch;
  for (const std::vector<int64_t>& crop : crops)
    batch.push_back(tensor(crop, {batch_, length_}, cpu));
  return batch;
}

PaddedRows pad_rows(const std::vector<std::vector<int64_t>>& rows, int64_t length, int64_t pad) {
  int64_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, int64_t(row.size()));
  check(length >= 0 && (length == 0 || longest <= length), "pad_rows", "the longest row has ",
        longest, " tokens, length is ", length, "; length must be 0, or at least the longest row");
  const size_t n = size_t(length > 0 ? length : longest);
  std::vector<int64_t> tokens, missing;
  for (const auto& row : rows)
    for (size_t i = 0; i < n; ++i) {
      tokens.push_back(i < row.size() ? row[i] : pad);
      missing.push_back(i >= row.size());
    }
  const Shape shape{int64_t(rows.size()), int64_t(n)};
  return {tensor(tokens, shape, cpu), tensor(missing, shape, cpu).to(boolean)};
}

Batch classification_batch(const std::vector<std::vector<int64_t>>& sequences,
                           const std::vector<int64_t>& classes, int64_t length, int64_t pad) {
  check(classes.size() == sequences.size(), "classification_batch", sequences.size(),
        " sequences, ", classes.size(), " classes; needs a class for each sequence");
  const PaddedRows rows = pad_rows(sequences, length, pad);
  return {rows.tokens, tensor(classes, {int64_t(classes.size())}, cpu), rows.padding};
}

Batch tagging_batch(const std::vector<std::vector<int64_t>>& sequences,
                    const std::vector<std::vector<int64_t>>& tags, int64_t length, int64_t pad) {
  check(tags.size() == sequences.size(), "tagging_batch", sequences.size(), " sequences, ",
        tags.size(), " rows of tags; needs a row for each sequence");
  for (size_t i = 0; i < sequences.size(); ++i)
    check(tags[i].size() == sequences[i].size(), "tagging_batch", "sequence ", i, " has ",
          sequences[i].size(), " tokens and ", tags[i].size(), " tags; needs a tag for each token");
  const PaddedRows rows = pad_rows(sequences, length, pad);
  return {rows.tokens, pad_rows(tags, length, ignore_index).tokens, rows.padding};
}

Batch next_token_batch(const std::vector<std::vector<int64_t>>& sequences, int64_t length,
                       int64_t pad) {
  size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
  check(length > 0 ? longest <= size_t(length) + 1 : longest >= 2, "next_token_batch",
        "the longest sequence has ", int64_t(longest), " tokens, length is ", length,
        "; the longest sequence must have at least 2 tokens if length is 0, otherwise at most "
        "length + 1");
  const size_t n = length > 0 ? size_t(length) : longest - 1;
  std::vector<int64_t> inputs, targets;
  for (const auto& sequence : sequences)
    for (size_t i = 0; i < n; ++i) {
      inputs.push_back(i < sequence.size() ? sequence[i] : pad);
      targets.push_back(i + 1 < sequence.size() ? sequence[i + 1] : ignore_index);
    }
  const Shape shape{int64_t(sequences.size()), int64_t(n)};
  return {tensor(inputs, shape, cpu), tensor(targets, shape, cpu)};
}

Batch prompted_batch(const std::vector<PromptedAnswer>& examples, int64_t length, int64_t pad) {
  std::vector<std::vector<int64_t>> sequences;
  for (const PromptedAnswer& example : examples) {
    check(!example.prompt.empty(), "prompted_batch", "prompt ", int64_t(sequences.size()),
          " is empty; must have at least one token");
    sequences.push_back(example.prompt);
    sequences.back().insert(sequences.back().end(), example.answer.begin(), example.answer.end());
  }
  Batch batch = next_token_batch(sequences, length, pad);
  for (size_t i = 0; i < examples.size(); ++i)
    batch.targets.select(0, int64_t(i))
        .slice(0, 0, int64_t(examples[i].prompt.size()) - 1)
        .fill_(ignore_index);
  return batch;
}

}  // namespace stretto::nn
