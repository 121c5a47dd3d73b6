// Optimizer steps, norms and clipping on the device, many tensors per launch, as in ops/optim.h.
// All tensors of one call are contiguous, of one dtype and on one device.
#pragma once

#include <span>

#include "../core/formulas/optim_math.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

STRETTO_KERNEL(void sgd_steps(std::span<const SgdTask> tasks));
STRETTO_KERNEL(void adam_steps(std::span<const AdamTask> tasks));

/// Sums of squares of parts of the tensors, f64 [parts]; `tensors` must not be empty. If they have
/// no elements, the result is a single 0.
STRETTO_KERNEL(Tensor squares(const Tensors& tensors));
/// Multiplies all tensors by most / norm if the norm, an f64 scalar, is finite and exceeds `most`.
STRETTO_KERNEL(void clip(const Tensors& tensors, const Tensor& norm, double most));

}  // namespace stretto::cuda
