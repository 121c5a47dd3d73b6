// Philox 4x32-10 by cuRAND, and Stretto's on the GPU; both must be bit-identical to philox()
// on the host.
#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace stretto::testing {

/// Writes the first n 32-bit integers of a sequence by cuRAND's device header, which also works on
/// the host: `device` may be the CPU.
void curand_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device);
/// Writes the same by philox() in a kernel.
void device_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device);

}  // namespace stretto::testing
