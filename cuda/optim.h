// Optimisers' steps on the device, as in ops/optim.h.
#pragma once

#include "cuda/kernel.h"
#include "ops/optim_math.h"

namespace stretto::cuda {

STRETTO_KERNEL(void sgd_step(const Tensor& weight, const Tensor& gradient, const Tensor& master,
                             const Tensor& momentum, const SgdStep& step));
STRETTO_KERNEL(void adam_step(const Tensor& weight, const Tensor& gradient, const Tensor& master,
                              const Tensor& m, const Tensor& v, const Tensor& v_max,
                              const AdamStep& step));

}  // namespace stretto::cuda
