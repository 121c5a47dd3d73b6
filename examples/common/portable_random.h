// Random integers that are the same on every machine and with every standard library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace stretto::examples {

/// One step of the splitmix64 sequence: advances `state` and returns 64 well-mixed bits.
inline uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// The xoshiro256** generator of Blackman and Vigna; uses integer arithmetic only.
class PortableRandom {
 public:
  explicit PortableRandom(uint64_t seed) {
    for (uint64_t& word : state_) word = splitmix64(seed);
  }

  /// Returns 64 random bits.
  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// Returns an integer in 0 … n − 1; `n` must be positive (the bias is below n / 2^32).
  int below(int n) { return int(((next() >> 32) * uint64_t(n)) >> 32); }

  /// True with a probability of `p` percent.
  bool percent(int p) { return below(100) < p; }

  /// Returns an index into `weights`, with a probability proportional to its weight.
  int weighted(std::initializer_list<int> weights) {
    int total = 0;
    for (const int weight : weights) total += weight;
    int left = below(total);
    int index = 0;
    for (const int weight : weights) {
      if (left < weight) break;
      left -= weight;
      ++index;
    }
    return index;
  }

 private:
  static uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

  std::array<uint64_t, 4> state_{};
};

}  // namespace stretto::examples
