// The host memory that a program can still allocate.
#pragma once

#include <cstdint>

namespace stretto {

/// Returns the number of bytes of host memory that can be allocated now without swapping: the
/// system's estimate (MemAvailable), capped by the limits of the container (cgroup) and the process
/// (ulimit -v). For set_memory_limit().
int64_t available_memory();

}  // namespace stretto
