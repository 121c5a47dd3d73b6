// Noise of stochastic positional encoding on the device (ops/spe/).
#pragma once

#include "../../core/random.h"
#include "../runtime/kernel.h"

namespace stretto::cuda {

/// out [N, rows, n], contiguous, f32 or f64: element j of row i of block k is normal random number
/// k·apart + first + i·pitch + j of the key, bit-identical to the CPU's.
STRETTO_KERNEL(void fill_normal_rows(const Tensor& out, RandomKey key, int64_t apart, int64_t first,
                                     int64_t pitch));

/// The same random numbers with rows transposed, out [N, R, rows, n], contiguous: (k, r, i, j) is
/// random number k·apart + first + i·pitch + j·R + r.
STRETTO_KERNEL(void fill_normal_columns(const Tensor& out, RandomKey key, int64_t apart,
                                        int64_t first, int64_t pitch));

}  // namespace stretto::cuda
