// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A random number is a pure function of (seed, stream, index). Noise is
// therefore never saved for the backward pass, a resumed run is bit-identical to an uninterrupted
// one, and integers and uniforms are bit-identical on CPU and GPU. The layout is that of cuRAND's
// Philox: key = seed, counter = (index / 4, stream), so curand_init(seed, stream, index) continues
// the same sequence.
#pragma once

#include <cstdint>

#include "math.h"

namespace stretto {

/// Identifies one sequence of random numbers.
struct RandomKey {
  uint64_t seed = 0;    ///< The Philox key.
  uint64_t stream = 0;  ///< The upper 64 bits of the Philox counter.
};

/// One Philox block: four 32-bit random integers.
struct Random4 {
  uint32_t v[4];  ///< The integers, in the order of the sequence.
};

/// Returns random integers 4·block … 4·block + 3 of a sequence.
STRETTO_HD inline Random4 philox(RandomKey key, uint64_t block) {
  uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32);
  uint32_t c2 = uint32_t(key.stream), c3 = uint32_t(key.stream >> 32);
  uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0;
    const uint64_t p1 = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c1 = uint32_t(p1);
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c3 = uint32_t(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The number of blocks that philox_words() computes at once: enough for the compiler to keep the
/// loops and vectorize them.
inline constexpr int philox_lanes = 32;
/// Words of philox_lanes blocks, in 64-bit lanes because the products have 64 bits.
using PhiloxWords = uint64_t[4][philox_lanes];
/// Computes blocks first … first + philox_lanes − 1; word j of block first + l becomes words[j][l].
/// For the CPU: inlined into STRETTO_CLONES functions.
[[gnu::always_inline]] inline void philox_words(RandomKey key, uint64_t first, PhiloxWords& words) {
  for (int l = 0; l < philox_lanes; ++l) {
    const uint64_t block = first + uint64_t(l);
    words[0][l] = uint32_t(block);
    words[1][l] = block >> 32;
    words[2][l] = uint32_t(key.stream);
    words[3][l] = key.stream >> 32;
  }
  uint64_t k0 = uint32_t(key.seed), k1 = key.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < philox_lanes; ++l) {
      const uint64_t p0 = 0xD2511F53u * words[0][l], p1 = 0xCD9E8D57u * words[2][l];
      words[0][l] = (p1 >> 32) ^ words[1][l] ^ k0;
      words[1][l] = uint32_t(p1);
      words[2][l] = (p0 >> 32) ^ words[3][l] ^ k1;
      words[3][l] = uint32_t(p0);
    }
    k0 = uint32_t(k0 + 0x9E3779B9u);
    k1 = uint32_t(k1 + 0xBB67AE85u);
  }
}

/// Returns the 32-bit integer at `index` of a sequence.
STRETTO_HD inline uint32_t random_bits(RandomKey key, uint64_t index) {
  return philox(key, index >> 2).v[index & 3];
}

/// Converts a 32-bit random integer to a float in [0, 1), from its upper 24 bits.
STRETTO_HD inline float uniform_from_bits(uint32_t bits) {
  return float(bits >> 8) * (1.0f / 16777216.0f);
}

/// Computes two independent standard normals from two 32-bit random integers (Box–Muller).
/// Bit-identical on the GPU, where this is compiled without fused multiply-adds (cuda/random.cu).
STRETTO_HD inline void normals_from_bits(uint32_t a, uint32_t b, float& first, float& second) {
  const float radius = math::sqrt(-2.0f * math::detail::log(1.0f - uniform_from_bits(a)));
  const float angle = 6.283185307179586f * uniform_from_bits(b);
  first = radius * math::detail::sin_abs(angle, 1);
  second = radius * math::detail::sin_abs(angle, 0);
}

/// The rule of dropout with probability p: an element is dropped if the upper 24 bits of its random
/// integer are less than `below`, else multiplied by `factor`.
struct DropoutRule {
  uint32_t below = 0;  ///< ⌈p · 2²⁴⌉.
  double factor = 1;   ///< 1 / (1 − p); 0 for p = 1.

  DropoutRule() = default;
  /// Makes the rule for p in [0, 1].
  explicit DropoutRule(double p)
      : below(uint32_t(std::ceil(p * 16777216.0))), factor(p >= 1 ? 0 : 1 / (1 - p)) {}
};

/// Scales two 32-bit random integers, read as a 64-bit fraction, to an integer in [0, range) with
/// range <= 2^32.
STRETTO_HD inline uint64_t below_from_bits(uint64_t range, uint32_t high, uint32_t low) {
  return (high * range + (low * range >> 32)) >> 32;
}

/// Writes random integers 4 · first_block … 4 · (first_block + n_blocks) − 1 of a sequence to
/// `out`. Vectorized; for the CPU.
void philox_blocks(RandomKey key, uint64_t first_block, int64_t n_blocks, uint32_t* out);

/// The random state of the program: a seed and the next unused stream. Every op that needs random
/// numbers uses one stream. Save and restore the state to repeat a run.
struct RandomState {
  uint64_t seed = 0;         ///< The seed of all streams.
  uint64_t next_stream = 0;  ///< The first stream that no op has used.
};

/// Sets the seed of the program and restarts at stream 0. The default seed is 0.
void manual_seed(uint64_t seed);
/// Returns the random state of the program.
RandomState random_state();
/// Replaces the random state of the program. Throws under recompute().
void set_random_state(RandomState state);
/// Returns a key with a new stream, from any thread. Under recompute() the recomputing run gets
/// the keys of the recording run again.
RandomKey next_random_key();

/// A source of keys that replaces the program's random state in one thread (ThreadState::random),
/// as RecomputeScope does.
struct RandomSource {
  /// Returns the next key.
  virtual RandomKey next_key() = 0;
  /// Called before set_random_state() changes the program's state.
  virtual void before_set() = 0;

 protected:
  ~RandomSource() = default;
};

}  // namespace stretto
