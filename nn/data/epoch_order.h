// The order in which training steps visit the rows of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace stretto::nn {

/// Selects the rows of each batch: all n rows in random order, then all rows in another random
/// order, and so on. All batches have the same size. Every epoch has every row exactly once; a
/// batch may span two epochs.
class EpochOrder {
 public:
  /// Returns the order of an epoch: a permutation of the rows 0 … n − 1.
  using Shuffle = std::function<std::vector<int64_t>(int64_t epoch)>;

  /// Shuffles n rows by `seed`, for batches of `batch` rows. n is 1 to 2147483647.
  EpochOrder(int64_t n, int64_t batch, uint64_t seed);
  /// Visits n rows in the order that `shuffle` returns for each epoch.
  EpochOrder(int64_t n, int64_t batch, Shuffle shuffle);
  /// Returns the rows of a step (from 0), which depend only on the step.
  std::vector<int64_t> operator()(int64_t step);

 private:
  int64_t n_, batch_;
  Shuffle shuffle_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // of that epoch
};

}  // namespace stretto::nn
