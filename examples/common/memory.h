// How much memory a program may hope for.
#pragma once

#include <cstdint>

namespace stretto::examples {

/// Bytes that can be had now without swapping, as far as the system tells: what is free or can be
/// freed, at most what the container and the process (ulimit -v) are allowed.
int64_t available_memory();

}  // namespace stretto::examples
