// Random tensors on the device. Element i is random number i of the sequence, bit-identical to the
// CPU's; normals come in pairs (2j, 2j + 1).
#pragma once

#include "../core/random.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// f32, f64 or bf16, contiguous.
STRETTO_KERNEL(void fill_uniform(const Tensor& out, RandomKey key));
STRETTO_KERNEL(void fill_normal(const Tensor& out, RandomKey key));
/// x · scale, contiguous, but 0 for element i if the upper 24 bits of random number i are less than
/// `below`; plus the residual, of x's shape and dtype, if it is defined.
STRETTO_KERNEL(Tensor dropout(const Tensor& x, uint32_t below, double scale, RandomKey key,
                              const Tensor& residual = {}));
/// Integers in [low, low + range), range ≤ 2^32, i64; random numbers 2i and 2i + 1 make element i.
STRETTO_KERNEL(Tensor randint(const Shape& shape, int64_t low, uint64_t range, RandomKey key,
                              Device device));

}  // namespace stretto::cuda
