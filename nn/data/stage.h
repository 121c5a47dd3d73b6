// Batches on their way to the device, in captured steps too (nn/training/captured_step.h).
#pragma once

#include <functional>

#include "../../core/tensor.h"

namespace stretto::nn {

/// What make() returns, on the device. In a captured step it is called again before each replay,
/// and the tensors that were returned get what it makes then: the shapes must stay.
Tensors stage(Device device, const std::function<Tensors()>& make);

}  // namespace stretto::nn
