// Labelled sequences of token ids: how a data set lies in memory, how batches are made of it, and
// how sure an accuracy is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/data/epoch_order.h"

namespace stretto::examples {

/// Sequences of ids, one behind the other.
class SequenceList {
 public:
  void add(const std::vector<uint16_t>& ids);
  int64_t size() const { return int64_t(starts_.size()) - 1; }
  int64_t length(int64_t i) const { return starts_[size_t(i) + 1] - starts_[size_t(i)]; }
  /// length(i) ids.
  const uint16_t* operator[](int64_t i) const { return ids_.data() + starts_[size_t(i)]; }
  int64_t longest() const;
  int64_t total() const { return int64_t(ids_.size()); }

 private:
  std::vector<uint16_t> ids_;
  std::vector<int64_t> starts_{0};
};

/// A data set for classification.
struct LabelledSequences {
  SequenceList sequences;
  SequenceList others;  // the second sequence of each, where there are pairs; else empty
  std::vector<int32_t> labels;

  int64_t size() const { return int64_t(labels.size()); }
  bool pairs() const { return others.size() > 0; }
  /// Tells data sets apart.
  std::string fingerprint() const;
  /// Those from `first` on, `count` of them.
  LabelledSequences part(int64_t first, int64_t count) const;
  /// Those at these places, in this order.
  LabelledSequences rows(const std::vector<int64_t>& places) const;
};

/// Places of a data set, for two parts of it.
struct HeldOutRows {
  std::vector<int64_t> kept;  // rising
  std::vector<int64_t> held;  // in random order
};

/// Draws by `seed` which examples to hold out: `share` of all, and of each label as near to that
/// share as whole numbers allow, whatever the order of the examples.
HeldOutRows hold_out(const std::vector<int32_t>& labels, double share, uint64_t seed);

/// Returns `most` of the places 0 … n - 1, drawn by `seed`, or all in order if most is 0 or n or
/// more: the first ones of a file that is sorted by label would be of one label.
std::vector<int64_t> sample_rows(int64_t n, int64_t most, uint64_t seed);

/// Returns the labels below `n_classes` that none of `labels` has, as "3, 7"; "" if there are none.
std::string missing_labels(const std::vector<int32_t>& labels, int64_t n_classes);

/// Rows of a data set as a model takes them. Padding has id 0 and stands behind.
struct SequenceBatch {
  Tensor tokens, padding;              // [B, L] i32 and bool, true = padding
  Tensor others, others_padding = {};  // the same with a length of their own; undefined: no pairs
  Tensor labels;                       // [B] i64
};

/// Of these rows. L is `length`, which no sequence may exceed; 0: as long as the longest here.
SequenceBatch make_batch(const LabelledSequences& data, const std::vector<int64_t>& rows,
                         int64_t length = 0);

/// The length of the longest of these, at least 1.
int64_t longest_of(const SequenceList& list, const std::vector<int64_t>& rows);

/// The order of n rows in each epoch, by PortableRandom.
nn::EpochOrder::Shuffle shuffles(int64_t n, uint64_t seed);

/// How many of a sample were right.
struct Accuracy {
  int64_t correct = 0, total = 0;
  double value() const { return double(correct) / double(total); }
  /// Where the true share lies with 95 % confidence (Wilson 1927).
  struct Interval {
    double low, high;
  };
  Interval interval() const;
};

/// The share of the most frequent label: what a constant answer gets.
Accuracy majority(const std::vector<int32_t>& labels);

/// Returns the mean loss, in nats, of `labels` for a model that knows no more than how often each
/// of `n_classes` is among `train`, smoothed by one; NaN if there are none.
double class_frequency_loss(const std::vector<int32_t>& train, const std::vector<int32_t>& labels,
                            int64_t n_classes);

}  // namespace stretto::examples
