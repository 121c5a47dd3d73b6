// Random numbers for one training step; they depend only on seed and step.
#pragma once

#include "../../core/random.h"

namespace stretto::nn {

/// A sequence of random integers.
class Draws {
 public:
  /// Starts the sequence of a seed and a step.
  Draws(uint64_t seed, int64_t step) : key_{seed, uint64_t(step)} {}
  /// Returns the next integer, uniform in 0 … n − 1; n is 1 to 2^32.
  int64_t below(int64_t n) {
    return int64_t(uint64_t(random_bits(key_, next_++)) * uint64_t(n) >> 32);
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

}  // namespace stretto::nn
