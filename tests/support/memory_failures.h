// Makes a function run out of memory at every allocation.
#pragma once

#include <cstdint>

#include "core/storage.h"
#include "core/tensor.h"
#include "tests/support/catch.h"

namespace stretto::testing {

/// Calls f with a memory limit that starts at the memory in use and rises by `step` bytes until f
/// succeeds. Calls `failed` without a limit after each failure. Returns the number of failures.
template <class F, class Failed>
int64_t fail_until_it_fits(F&& f, int64_t step, Failed&& failed) {
  struct NoLimit {
    ~NoLimit() { set_memory_limit(INT64_MAX); }
  };
  int64_t failures = 0;
  release_cached_memory();  // cached memory does not count as in use
  for (int64_t limit = memory_stats().live;; limit += step) {
    try {
      const NoLimit afterwards;
      release_cached_memory();
      set_memory_limit(limit);
      f();
      return failures;
    } catch (const OutOfMemory&) {
      if (++failures > 2000) throw;  // failed calls must not leak memory
    }
    failed();
  }
}

template <class F>
int64_t fail_until_it_fits(F&& f, int64_t step = 256) {
  return fail_until_it_fits(f, step, [] {});
}

}  // namespace stretto::testing
