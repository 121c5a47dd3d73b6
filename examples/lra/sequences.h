// Labeled sequences of token ids: storage, batches, and confidence intervals of accuracies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/data/epoch_order.h"

namespace stretto::examples {

/// Sequences of ids, stored contiguously.
class SequenceList {
 public:
  void add(const std::vector<uint16_t>& ids);
  int64_t size() const { return int64_t(starts_.size()) - 1; }
  int64_t length(int64_t i) const { return starts_[size_t(i) + 1] - starts_[size_t(i)]; }
  /// Returns a pointer to length(i) ids.
  const uint16_t* operator[](int64_t i) const { return ids_.data() + starts_[size_t(i)]; }
  int64_t longest() const;
  int64_t total() const { return int64_t(ids_.size()); }

 private:
  std::vector<uint16_t> ids_;
  std::vector<int64_t> starts_{0};
};

/// A data set for classification.
struct LabeledSequences {
  SequenceList sequences;
  SequenceList others;  ///< the second sequence of each pair; empty without pairs
  std::vector<int32_t> labels;

  int64_t size() const { return int64_t(labels.size()); }
  bool pairs() const { return others.size() > 0; }
  /// Returns a digest that identifies the data set.
  std::string fingerprint() const;
  /// Returns `count` examples from `first` on.
  LabeledSequences part(int64_t first, int64_t count) const;
  /// Returns the examples at these indices, in this order.
  LabeledSequences rows(const std::vector<int64_t>& places) const;
};

/// Indices that split a data set into two parts.
struct HeldOutRows {
  std::vector<int64_t> kept;  ///< ascending
  std::vector<int64_t> held;  ///< in random order
};

/// Chooses by `seed` which examples to hold out: the fraction `share` of all and, as nearly as
/// integers allow, of each label, whatever the order of the examples.
HeldOutRows hold_out(const std::vector<int32_t>& labels, double share, uint64_t seed);

/// Returns `most` of the indices 0 … n − 1, chosen by `seed`, or all in order if most is 0 or at
/// least n. (The first examples of a file sorted by label would all have the same label.)
std::vector<int64_t> sample_rows(int64_t n, int64_t most, uint64_t seed);

/// Returns the labels below `n_classes` that do not occur in `labels`, as "3, 7"; "" if all occur.
std::string missing_labels(const std::vector<int32_t>& labels, int64_t n_classes);

/// A batch of a data set. Padding is at the end and has id 0.
struct SequenceBatch {
  Tensor tokens, padding;              ///< [B, L] i32, and bool, true = padding
  Tensor others, others_padding = {};  ///< the same with another length; undefined without pairs
  Tensor labels;                       ///< [B] i64
};

/// Returns the batch of these rows. L is `length`, which no sequence may exceed; 0: the length of
/// the longest sequence.
SequenceBatch make_batch(const LabeledSequences& data, const std::vector<int64_t>& rows,
                         int64_t length = 0);

/// Returns the length of the longest sequence of these rows, at least 1.
int64_t longest_of(const SequenceList& list, const std::vector<int64_t>& rows);

/// Returns the function that shuffles n rows for each epoch, by PortableRandom.
nn::EpochOrder::Shuffle shuffles(int64_t n, uint64_t seed);

/// The number of correct answers in a sample.
struct Accuracy {
  int64_t correct = 0, total = 0;
  double value() const { return double(correct) / double(total); }
  /// 95 % confidence interval of the true accuracy (Wilson 1927).
  struct Interval {
    double low, high;
  };
  Interval interval() const;
};

/// Returns the fraction of the most frequent label: the accuracy of a constant answer.
Accuracy majority(const std::vector<int32_t>& labels);

/// Returns the mean loss, in nats, on `labels` of a model that predicts the frequencies of the
/// `n_classes` labels in `train`, with add-one smoothing; NaN if `labels` is empty.
double class_frequency_loss(const std::vector<int32_t>& train, const std::vector<int32_t>& labels,
                            int64_t n_classes);

}  // namespace stretto::examples
