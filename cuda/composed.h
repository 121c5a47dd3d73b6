// Which fused kernels the user has switched off.
#pragma once

#include "cuda/kernel.h"

namespace stretto::cuda {

/// Whether STRETTO_CUDA_COMPOSED, a list with commas, names this op (attention, linear_attention,
/// random_features, elu_features, spe, fft_conv): its composed form is taken in the place of its
/// kernels, as where they do not serve. Read at each call.
STRETTO_KERNEL(bool composed(const char* name));

}  // namespace stretto::cuda
