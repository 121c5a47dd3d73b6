// How much memory a program may hope for.
#pragma once

#include <cstdint>

namespace stretto {

/// Bytes that can be had now without swapping, as far as the system tells: what is free or can be
/// freed, at most what the container and the process (ulimit -v) are allowed. For
/// set_memory_limit().
int64_t available_memory();

}  // namespace stretto
