// The random choices of one training step: a function of seed and step alone.
#pragma once

#include "../../core/random.h"

namespace stretto::nn {

/// Whole numbers, one after the other.
class Draws {
 public:
  Draws(uint64_t seed, int64_t step) : key_{seed, uint64_t(step)} {}
  /// 0 … n − 1, for n of 1 to 2^32.
  int64_t below(int64_t n) {
    return int64_t(uint64_t(random_bits(key_, next_++)) * uint64_t(n) >> 32);
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

}  // namespace stretto::nn
