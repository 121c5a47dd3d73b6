// Optimizers' steps, norms and clipping on the device, many tensors in a launch, as in ops/optim.h.
// All tensors of a call are contiguous, of one dtype and on one device.
#pragma once

#include <span>

#include "../ops/optim_math.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

STRETTO_KERNEL(void sgd_steps(std::span<const SgdTask> tasks));
STRETTO_KERNEL(void adam_steps(std::span<const AdamTask> tasks));

/// Sums of squares of pieces of the tensors, f64 [pieces]: at least one.
STRETTO_KERNEL(Tensor squares(const Tensors& tensors));
/// Multiplies all by most / norm where the norm, one number in f64, is finite and larger.
STRETTO_KERNEL(void clip(const Tensors& tensors, const Tensor& norm, double most));

}  // namespace stretto::cuda
