// Copies batches to the device, also for replays of CUDA graphs (nn/training/captured_step.h).
#pragma once

#include <functional>

#include "../../core/tensor.h"

namespace stretto::nn {

/// Returns the tensors of make() on the device. If a step is captured as a CUDA graph, make() is
/// called again before each replay, and its tensors are copied into the ones that were returned;
/// shapes and dtypes must stay the same.
Tensors stage(Device device, const std::function<Tensors()>& make);

}  // namespace stretto::nn
