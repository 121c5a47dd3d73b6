// Random numbers by counter: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A draw is a pure function of (seed, stream, index), so noise is never stored
// for the backward pass, a resumed run continues bit for bit, and the integers and uniforms on CPU
// and GPU have the same bits. The layout is cuRAND's Philox: key = seed, counter = (index / 4,
// stream), so curand_init(seed, stream, index) continues the same sequence.
#pragma once

#include <cstdint>

#include "math.h"

namespace stretto {

/// Names one sequence of draws.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

struct Random4 {
  uint32_t v[4];
};

/// Draws 4·block … 4·block + 3 of a sequence, as 32-bit integers.
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

/// Draw j of block first + l is words[j][l], for 32 blocks side by side: in 64-bit lanes, as the
/// products are, and enough of them that the compiler keeps the loops and makes them vector
/// instructions. For the CPU; inlined into STRETTO_CLONES functions.
inline constexpr int philox_lanes = 32;
using PhiloxWords = uint64_t[4][philox_lanes];
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

/// The `index`-th 32-bit integer of a sequence.
STRETTO_HD inline uint32_t random_bits(RandomKey key, uint64_t index) {
  return philox(key, index >> 2).v[index & 3];
}

/// A 32-bit draw as a float in [0, 1): 24 bits, never 1.
STRETTO_HD inline float uniform_from_bits(uint32_t bits) {
  return float(bits >> 8) * (1.0f / 16777216.0f);
}

/// Two independent standard normals from two 32-bit draws (Box–Muller); the same bits on the
/// device, where no products and sums are fused (cuda/random.cu).
STRETTO_HD inline void normals_from_bits(uint32_t a, uint32_t b, float& first, float& second) {
  const float radius = math::sqrt(-2.0f * math::detail::log(1.0f - uniform_from_bits(a)));
  const float angle = 6.283185307179586f * uniform_from_bits(b);
  first = radius * math::detail::sin_abs(angle, 1);
  second = radius * math::detail::sin_abs(angle, 0);
}

/// Dropout with probability p: an element whose draw has upper 24 bits under `below` is dropped,
/// any other is multiplied by `factor`.
struct DropoutRule {
  uint32_t below = 0;
  double factor = 1;  ///< 1 / (1 − p); 0 for p = 1.

  DropoutRule() = default;
  explicit DropoutRule(double p)
      : below(uint32_t(std::ceil(p * 16777216.0))), factor(p >= 1 ? 0 : 1 / (1 - p)) {}
};

/// A whole number in [0, range) from two 32-bit draws, multiplied up; range <= 2^32.
STRETTO_HD inline uint64_t below_from_bits(uint64_t range, uint32_t high, uint32_t low) {
  return (high * range + (low * range >> 32)) >> 32;
}

/// Integers 4·first_block … of a sequence, four per block; fast on the CPU.
void philox_blocks(RandomKey key, uint64_t first_block, int64_t n_blocks, uint32_t* out);

/// The random state of the program: a seed and the next unused stream. Every op that draws takes
/// one stream. Save and restore it to repeat a run.
struct RandomState {
  uint64_t seed = 0;
  uint64_t next_stream = 0;
};

void manual_seed(uint64_t seed);
RandomState random_state();
void set_random_state(RandomState state);
/// A key with a stream that nothing else uses. From any thread.
RandomKey next_random_key();

/// Takes the place of the program's state in one thread (ThreadState::random):
/// autograd/recompute.h.
struct RandomSource {
  virtual RandomKey next_key() = 0;
  /// The program's state is about to be set.
  virtual void before_set() = 0;

 protected:
  ~RandomSource() = default;
};

}  // namespace stretto
