// Random numbers for one training step; they depend only on seed and step.
#pragma once

#include "../../core/random.h"

namespace stretto::nn {

/// A sequence of random integers.
class Draws {
 public:
  /// Starts the sequence of a seed and a step.
  Draws(uint64_t seed, int64_t step) : key_{seed, uint64_t(step)} {}
  /// Returns the next integer, uniform in 0 … n − 1; n is at least 1.
  int64_t below(int64_t n) {
    const uint64_t bits = random_bits(key_, next_++);
    if (n <= int64_t(1) << 32) return int64_t(bits * uint64_t(n) >> 32);
    __extension__ typedef unsigned __int128 Wide;  // 32 bits do not suffice
    const uint64_t more = bits << 32 | random_bits(key_, next_++);
    return int64_t(Wide(more) * uint64_t(n) >> 64);
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

}  // namespace stretto::nn
