// New tensors on the device whose values depend only on their indices.
#pragma once

#include "runtime/kernel.h"

namespace stretto::cuda {

/// f64 [n]: start + i·step for i < `counted`, then end − (n − 1 − i)·step.
STRETTO_KERNEL(Tensor line(int64_t n, int64_t counted, double start, double step, double end,
                           Device device));
/// bool [rows, columns]: true if column − row > k.
STRETTO_KERNEL(Tensor above_diagonal(int64_t rows, int64_t columns, int64_t k, Device device));

}  // namespace stretto::cuda
