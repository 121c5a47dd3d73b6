// Errors that a kernel finds: wrong indices, told where the host waits for the device anyhow (a
// copy to the host, synchronize), in the words of the CPU. No step waits because of them.
#pragma once

#include <functional>
#include <string>

#include "kernel.h"

namespace stretto::cuda {

/// What stands in the error after "[op] " when the index at a row-major position is `value`.
using IndexText = std::function<std::string(int64_t position, int64_t value)>;

/// The ids (i64, contiguous), all of which should lie in [0, size), size ≥ 1, or be `ignored`: a
/// copy with 0 for those that do not, so that kernels may read where they say. The first wrong one
/// of the first such check is reported.
STRETTO_KERNEL(Tensor checked_indices(const char* op, const Tensor& ids, int64_t size,
                                      int64_t ignored, IndexText text));

/// Makes the place of the first such error on the device, which is not to become part of a capture.
void ready_reports(int device);

/// Around each wait for the device: brings what has been found to the host, and throws it.
STRETTO_KERNEL(void fetch_reports(int device));
STRETTO_KERNEL(void raise_reports(int device));

}  // namespace stretto::cuda
