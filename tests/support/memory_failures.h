// Calls that run out of memory wherever they can.
#pragma once

#include <cstdint>

#include "core/storage.h"
#include "core/tensor.h"
#include "tests/support/catch.h"

namespace stretto::testing {

/// Calls f under caps of memory that rise in small steps from what is in use, until one suffices,
/// and `failed` after each call that ran out, without a cap. Returns how often that was.
template <class F, class Failed>
int64_t fail_until_it_fits(F&& f, int64_t step, Failed&& failed) {
  struct NoLimit {
    ~NoLimit() { set_memory_limit(INT64_MAX); }
  };
  int64_t failures = 0;
  release_cached_memory();  // what is kept is not in use
  for (int64_t limit = memory_stats().live;; limit += step) {
    try {
      const NoLimit afterwards;
      release_cached_memory();
      set_memory_limit(limit);
      f();
      return failures;
    } catch (const OutOfMemory&) {
      if (++failures > 2000) throw;  // what fails must not take more memory each time
    }
    failed();
  }
}

template <class F>
int64_t fail_until_it_fits(F&& f, int64_t step = 256) {
  return fail_until_it_fits(f, step, [] {});
}

}  // namespace stretto::testing
