#include "core/random.h"

#include <mutex>

#include "core/thread_state.h"

namespace stretto {
namespace {

std::mutex mutex;
RandomState state;

// 32 blocks side by side, so that the rounds become vector instructions: in 64-bit lanes, as the
// products are, and enough of them that the compiler keeps the loops.
constexpr int lanes = 32;

STRETTO_CLONES void many_blocks(RandomKey key, uint64_t first, uint32_t* out) {
  uint64_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
  for (int i = 0; i < lanes; ++i) {
    const uint64_t block = first + uint64_t(i);
    c0[i] = uint32_t(block);
    c1[i] = block >> 32;
    c2[i] = uint32_t(key.stream);
    c3[i] = key.stream >> 32;
  }
  uint64_t k0 = uint32_t(key.seed), k1 = key.seed >> 32;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < lanes; ++i) {
      const uint64_t p0 = 0xD2511F53u * c0[i], p1 = 0xCD9E8D57u * c2[i];
      c0[i] = (p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = uint32_t(p1);
      c2[i] = (p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = uint32_t(p0);
    }
    k0 = uint32_t(k0 + 0x9E3779B9u);
    k1 = uint32_t(k1 + 0xBB67AE85u);
  }
  for (int i = 0; i < lanes; ++i) {
    out[4 * i] = uint32_t(c0[i]);
    out[4 * i + 1] = uint32_t(c1[i]);
    out[4 * i + 2] = uint32_t(c2[i]);
    out[4 * i + 3] = uint32_t(c3[i]);
  }
}

}  // namespace

void philox_blocks(RandomKey key, uint64_t first_block, int64_t n_blocks, uint32_t* out) {
  int64_t i = 0;
  for (; i + lanes <= n_blocks; i += lanes)
    many_blocks(key, first_block + uint64_t(i), out + 4 * i);
  for (; i < n_blocks; ++i) {
    const Random4 r = philox(key, first_block + uint64_t(i));
    for (int j = 0; j < 4; ++j) out[4 * i + j] = r.v[j];
  }
}

void manual_seed(uint64_t seed) { set_random_state({.seed = seed}); }

RandomState random_state() {
  std::lock_guard lock(mutex);
  return state;
}

void set_random_state(RandomState value) {
  if (thread_state.random) thread_state.random->before_set();
  std::lock_guard lock(mutex);
  state = value;
}

RandomKey next_random_key() {
  if (thread_state.random) return thread_state.random->next_key();
  std::lock_guard lock(mutex);
  return {state.seed, state.next_stream++};
}

}  // namespace stretto
