// Which rows of a data set each training step takes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace stretto::nn {

/// All n rows in a random order, then again in another. Steps cut this endless row into batches of
/// one size, so that every epoch has every row exactly once.
class EpochOrder {
 public:
  /// The order of an epoch: the rows 0 … n − 1.
  using Shuffle = std::function<std::vector<int64_t>(int64_t epoch)>;

  EpochOrder(int64_t n, int64_t batch, uint64_t seed);
  EpochOrder(int64_t n, int64_t batch, Shuffle shuffle);
  /// The rows of a step, counted from 0: a function of the step alone.
  std::vector<int64_t> operator()(int64_t step);

 private:
  int64_t n_, batch_;
  Shuffle shuffle_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // of that epoch
};

}  // namespace stretto::nn
