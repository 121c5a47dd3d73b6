// Dispatch of an op to the device of its tensors. Internal to ops/.
#pragma once

#include <utility>

#include "../core/tensor.h"

namespace stretto {

/// Calls on_cpu(x, args...) or on_cuda(x, args...), by the device of x.
template <class Cpu, class Cuda, class... Args>
decltype(auto) on_device(const Tensor& x, Cpu&& on_cpu, Cuda&& on_cuda, const Args&... args) {
  return x.device().is_cpu() ? on_cpu(x, args...) : on_cuda(x, args...);
}

}  // namespace stretto
