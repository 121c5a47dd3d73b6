// Errors that a kernel finds: wrong indices, told where the host waits for the device anyhow (a
// copy to the host, synchronize), in the words of the CPU. No step waits because of them.
#pragma once

#include <functional>
#include <string>

#include "cuda/kernel.h"

namespace stretto::cuda {

/// What stands in the error after "[op] " when the index at a row-major position is `value`.
using IndexText = std::function<std::string(int64_t position, int64_t value)>;

/// Queues the check that all ids (i64, contiguous) lie in [0, size) or are `ignored` (any number
/// outside; -1 where there is none). The first wrong one of the first such check is reported.
/// Kernels that use the ids must not read outside for a wrong one.
STRETTO_KERNEL(void check_indices(const char* op, const Tensor& ids, int64_t size, int64_t ignored,
                                  IndexText text));

/// Throws what has been found by the work that is done. Called after each wait for the device.
STRETTO_KERNEL(void raise_reports(int device));

}  // namespace stretto::cuda
