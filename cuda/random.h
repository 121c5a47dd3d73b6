// Random tensors on the device: f32, f64 or bf16, contiguous. Element i is draw i of the sequence,
// as on the CPU; normals come in pairs (2j, 2j+1).
#pragma once

#include "core/random.h"
#include "cuda/kernel.h"

namespace stretto::cuda {

STRETTO_KERNEL(void fill_uniform(const Tensor& out, RandomKey key));
STRETTO_KERNEL(void fill_normal(const Tensor& out, RandomKey key));

/// For the tests: the first n 32-bit integers of a sequence, by cuRAND's own Philox 4x32-10
/// [curand_check.cu; on the CPU too, wherever the toolkit is], and by our philox() on a GPU
/// [random.cu]. Both must equal philox() on the host.
STRETTO_KERNEL(void curand_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device));
STRETTO_KERNEL(void device_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device));

}  // namespace stretto::cuda
