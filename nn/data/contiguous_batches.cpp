#include "nn/data/contiguous_batches.h"

#include <algorithm>

#include "core/error.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

// A row: positions first … first + n − 1 of the stream. Positions before `scored` and those without
// a next token are not scored.
struct Row {
  int64_t first, n, scored;
};

Batch make(const TokenStream& tokens, const std::vector<Row>& rows, int64_t length) {
  std::vector<int64_t> inputs, targets, read(size_t(length) + 1);
  for (const Row& row : rows) {
    const int64_t available = std::clamp<int64_t>(tokens.size() - row.first, 0, length + 1);
    tokens.read(available > 0 ? row.first : 0, available, read.data());
    for (int64_t i = 0; i < length; ++i) {
      const bool inside = i < row.n && i + 1 < available;
      inputs.push_back(inside ? read[size_t(i)] : 0);  // padding at the end has no effect
      targets.push_back(inside && row.first + i >= row.scored ? read[size_t(i + 1)] : ignore_index);
    }
  }
  const Shape shape{int64_t(rows.size()), length};
  return {tensor(inputs, shape, cpu), tensor(targets, shape, cpu)};
}

}  // namespace

ContiguousBatches::ContiguousBatches(TokenStream tokens, int64_t batch, int64_t length)
    : tokens_(std::move(tokens)),
      batch_(batch),
      length_(length),
      column_(batch >= 1 ? tokens_.size() / batch : 0) {
  check(batch >= 1 && length >= 1, "ContiguousBatches", "batch ", batch, ", length ", length,
        "; both must be at least 1");
  check(column_ >= 2, "ContiguousBatches", tokens_.size(), " tokens in ", batch,
        " columns; each must have at least 2");
}

Batch ContiguousBatches::operator()(int64_t step) const {
  const int64_t first = step % per_epoch() * length_;
  const int64_t n = std::min(length_, column_ - 1 - first);
  std::vector<Row> rows;
  for (int64_t b = 0; b < batch_; ++b) rows.push_back({b * column_ + first, n, 0});
  return make(tokens_, rows, n);
}

void for_each_evaluation_window(const TokenStream& tokens, const EvaluationWindows& rule,
                                int64_t batch, const std::function<void(const Batch&, bool)>& f,
                                int64_t groups) {
  const int64_t scored = tokens.size() - 1, length = rule.length;
  check(length >= 1 && rule.memory >= 0 && rule.stride >= 0 && rule.stride <= length &&
            batch >= 1 && groups >= 1,
        "for_each_evaluation_window", "length ", length, ", memory ", rule.memory, ", stride ",
        rule.stride, ", batch ", batch, ", groups ", groups,
        "; the stride must be 0 … length, the memory at least 0, the others at least 1");
  const int64_t stride = rule.stride > 0 ? rule.stride : length;
  if (scored < 1) return;
  std::vector<Row> rows;
  if (rule.memory > 0) {
    const int64_t columns = std::clamp<int64_t>(scored / length, 1, batch);
    const int64_t column = (scored + columns - 1) / columns;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = group * columns / groups, end = (group + 1) * columns / groups;
      if (begin == end) continue;
      for (int64_t first = 0; first < column; first += length) {
        rows.clear();
        const int64_t n = std::min(length, column - first);
        for (int64_t b = begin; b < end; ++b) rows.push_back({b * column + first, n, 0});
        f(make(tokens, rows, n), first == 0);
      }
    }
    return;
  }
  const int64_t all = std::min(length, scored);
  for (int64_t done = 0; done < scored;) {
    const int64_t end = std::min(scored, done == 0 ? all : done + stride);
    rows.push_back({end - all, all, done});
    done = end;
    if (int64_t(rows.size()) == batch || done == scored) {
      f(make(tokens, rows, all), true);
      rows.clear();
    }
  }
}

}  // namespace stretto::nn
