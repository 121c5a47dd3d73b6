// cuRAND's own Philox 4x32-10, and ours on the GPU: both must have the bits of philox() on the
// host.
#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace stretto::testing {

/// The first n 32-bit integers of a sequence, by cuRAND's device header, which serves the host as
/// well: on the CPU too, wherever the toolkit is.
void curand_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device);
/// The same by philox() in a kernel.
void device_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device);

}  // namespace stretto::testing
