// Which fused kernels the user has switched off, or the GPU cannot run.
#pragma once

#include "../../core/device.h"
#include "kernel.h"

namespace stretto::cuda {

/// Whether an op's composed form is taken in the place of its kernels, as where they do not serve:
/// STRETTO_CUDA_COMPOSED, a list with commas, names it (attention, linear_attention,
/// random_features, elu_features, spe, fft_conv), or a block of this GPU has less than 227 KB of
/// shared memory, for which all of these but elu_features are made. Looked up at each call; any
/// other name in the list is an error.
STRETTO_KERNEL(bool composed(const char* name, Device device));

}  // namespace stretto::cuda
