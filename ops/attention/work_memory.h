// Work memory of a kernel: several buffers in one allocation. Internal to ops/.
//
// Reference: none (memory)
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../create.h"

namespace stretto {

/// Allocates buffers of the given numbers of elements at once and stores their addresses. Returns
/// the tensor that owns them. For one token, separate allocations would take longer than the work.
template <class T>
Tensor work_memory(const std::vector<std::pair<T**, int64_t>>& buffers) {
  const auto apart = [](int64_t n) { return (n + 31) / 32 * 32; };
  int64_t size = 0;
  for (const auto& [buffer, n] : buffers) size += apart(n);
  Tensor memory = empty({size}, {.dtype = dtype_of<T>(), .device = cpu});
  T* next = memory.data<T>();
  for (const auto& [buffer, n] : buffers) *buffer = std::exchange(next, next + apart(n));
  return memory;
}

}  // namespace stretto
