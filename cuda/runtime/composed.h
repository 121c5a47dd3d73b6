// Which fused kernels the user has disabled, or the GPU cannot run.
#pragma once

#include "../../core/device.h"
#include "kernel.h"

namespace stretto::cuda {

/// True if an op uses its composed implementation instead of its fused kernels:
/// STRETTO_CUDA_COMPOSED, a comma-separated list, names it (attention, linear_attention,
/// gated_linear_attention, random_features, elu_features, spe, fft_conv), or a block of this GPU
/// has less than 227 KB of shared memory, which all of these except elu_features need. Looked up at
/// each call; any other name in the list is an error.
STRETTO_KERNEL(bool composed(const char* name, Device device));

}  // namespace stretto::cuda
