#include "examples/lra/sequences.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/digest.h"
#include "core/error.h"
#include "examples/common/portable_random.h"
#include "ops/create.h"

namespace stretto::examples {

void SequenceList::add(const std::vector<uint16_t>& ids) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  starts_.push_back(int64_t(ids_.size()));
}

int64_t SequenceList::longest() const {
  int64_t most = 0;
  for (int64_t i = 0; i < size(); ++i) most = std::max(most, length(i));
  return most;
}

std::string LabeledSequences::fingerprint() const {
  Digest print;
  for (const SequenceList* list : {&sequences, &others})
    for (int64_t i = 0; i < list->size(); ++i) {
      print.add(list->length(i));
      for (int64_t t = 0; t < list->length(i); ++t) print.add((*list)[i][t]);
    }
  for (const int32_t label : labels) print.add(label);
  return print.text();
}

LabeledSequences LabeledSequences::part(int64_t first, int64_t count) const {
  check(first >= 0 && count >= 0 && first + count <= size(), "LabeledSequences", count,
        " examples from ", first, " on; there are ", size());
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), first);
  return rows(places);
}

LabeledSequences LabeledSequences::rows(const std::vector<int64_t>& places) const {
  LabeledSequences some;
  const auto copy = [&](const SequenceList& from, SequenceList& to) {
    for (const int64_t i : places) to.add(std::vector<uint16_t>(from[i], from[i] + from.length(i)));
  };
  copy(sequences, some.sequences);
  if (pairs()) copy(others, some.others);
  for (const int64_t i : places) some.labels.push_back(labels[size_t(i)]);
  return some;
}

int64_t longest_of(const SequenceList& list, const std::vector<int64_t>& rows) {
  int64_t longest = 1;
  for (const int64_t row : rows) longest = std::max(longest, list.length(row));
  return longest;
}

namespace {

void fill(const SequenceList& list, const std::vector<int64_t>& rows, int64_t length,
          Tensor& tokens, Tensor& padding) {
  const int64_t longest = longest_of(list, rows);
  check(length == 0 || longest <= length, "make_batch", "a sequence of ", longest,
        " ids; the largest length is ", length);
  const int64_t l = length > 0 ? length : longest;
  tokens = zeros({int64_t(rows.size()), l}, {.dtype = i32});
  padding = ones({int64_t(rows.size()), l}, {.dtype = boolean});
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint16_t* ids = list[rows[i]];
    const int64_t n = list.length(rows[i]);
    std::copy(ids, ids + n, tokens.data<int32_t>() + int64_t(i) * l);
    std::fill_n(padding.data<bool>() + int64_t(i) * l, n, false);
  }
}

}  // namespace

SequenceBatch make_batch(const LabeledSequences& data, const std::vector<int64_t>& rows,
                         int64_t length) {
  SequenceBatch batch;
  fill(data.sequences, rows, length, batch.tokens, batch.padding);
  if (data.pairs()) fill(data.others, rows, length, batch.others, batch.others_padding);
  std::vector<int64_t> labels;
  for (const int64_t row : rows) labels.push_back(data.labels[size_t(row)]);
  batch.labels = tensor(labels, {int64_t(labels.size())});
  return batch;
}

nn::EpochOrder::Shuffle shuffles(int64_t n, uint64_t seed) {
  // The random numbers of different seeds and epochs do not overlap.
  const uint64_t stream = splitmix64(seed);
  return [n, stream](int64_t epoch) {
    PortableRandom random(stream + uint64_t(epoch));
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    for (int i = int(n) - 1; i > 0; --i)
      std::swap(order[size_t(i)], order[size_t(random.below(i + 1))]);
    return order;
  };
}

HeldOutRows hold_out(const std::vector<int32_t>& labels, double share, uint64_t seed) {
  const auto n = int64_t(labels.size());
  // The seed is changed so that the order differs from that of the training epochs.
  std::vector<int64_t> order = shuffles(n, seed ^ 0x68656c64ull)(0);
  // Selects examples at equal intervals of the list sorted by label; the order within a label is
  // random.
  std::vector<int64_t> by_label = order;
  std::stable_sort(by_label.begin(), by_label.end(),
                   [&](int64_t a, int64_t b) { return labels[size_t(a)] < labels[size_t(b)]; });
  std::vector<bool> is_held(labels.size());
  const auto held_before = [&](int64_t i) { return int64_t(share * double(i)); };
  for (int64_t i = 0; i < n; ++i)
    is_held[size_t(by_label[size_t(i)])] = held_before(i + 1) > held_before(i);
  HeldOutRows rows;
  for (const int64_t i : order)
    if (is_held[size_t(i)]) rows.held.push_back(i);
  for (int64_t i = 0; i < n; ++i)
    if (!is_held[size_t(i)]) rows.kept.push_back(i);
  return rows;
}

std::vector<int64_t> sample_rows(int64_t n, int64_t most, uint64_t seed) {
  if (most > 0 && most < n) {
    std::vector<int64_t> rows = shuffles(n, seed)(0);
    rows.resize(size_t(most));
    return rows;
  }
  std::vector<int64_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::string missing_labels(const std::vector<int32_t>& labels, int64_t n_classes) {
  std::string missing;
  for (int64_t label = 0; label < n_classes; ++label)
    if (std::find(labels.begin(), labels.end(), label) == labels.end())
      missing += (missing.empty() ? "" : ", ") + std::to_string(label);
  return missing;
}

Accuracy::Interval Accuracy::interval() const {
  check(total >= 1 && correct >= 0 && correct <= total, "Accuracy", correct, " of ", total);
  constexpr double z = 1.959963984540054;  // 97.5 % quantile of the standard normal
  const double n = double(total), p = value();
  const double center = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {std::max(0.0, center - half), std::min(1.0, center + half)};
}

Accuracy majority(const std::vector<int32_t>& labels) {
  std::map<int32_t, int64_t> counts;
  Accuracy best{0, int64_t(labels.size())};
  for (const int32_t label : labels) best.correct = std::max(best.correct, ++counts[label]);
  return best;
}

double class_frequency_loss(const std::vector<int32_t>& train, const std::vector<int32_t>& labels,
                            int64_t n_classes) {
  std::vector<double> counts(size_t(n_classes), 1);
  for (const int32_t label : train) ++counts[size_t(label)];
  double sum = 0;
  for (const int32_t label : labels)
    sum -= std::log(counts[size_t(label)] / double(int64_t(train.size()) + n_classes));
  return sum / double(labels.size());
}

}  // namespace stretto::examples
