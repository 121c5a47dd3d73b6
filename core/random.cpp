#include "core/random.h"

#include <mutex>

#include "core/thread_state.h"

namespace stretto {
namespace {

std::mutex mutex;
RandomState state;

STRETTO_CLONES void many_blocks(RandomKey key, uint64_t first, uint32_t* out) {
  PhiloxWords words;
  philox_words(key, first, words);
  for (int l = 0; l < philox_lanes; ++l) {
    out[4 * l] = uint32_t(words[0][l]);
    out[4 * l + 1] = uint32_t(words[1][l]);
    out[4 * l + 2] = uint32_t(words[2][l]);
    out[4 * l + 3] = uint32_t(words[3][l]);
  }
}

}  // namespace

void philox_blocks(RandomKey key, uint64_t first_block, int64_t n_blocks, uint32_t* out) {
  int64_t i = 0;
  for (; i + philox_lanes <= n_blocks; i += philox_lanes)
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
