#include "nn/data/stage.h"

#include "core/gpu_runtime.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/view.h"

namespace stretto::nn {

Tensors stage(Device device, const std::function<Tensors()>& make) {
  Tensors made = make(), there;
  if (device.is_cpu() || !cuda::capturing(device.index)) {
    for (const Tensor& x : made) there.push_back(x.to(device));
    return there;
  }
  // A replay copies before it launches: what comes from the step's pool may be memory that an
  // earlier kernel of the step has used and freed, and would be written to by that kernel again.
  {
    const MemoryPool inputs(device);
    const MemoryPool::Use use(inputs);
    for (const Tensor& x : made)
      there.push_back(empty(x.shape(), {.dtype = x.dtype(), .device = device}));
  }
  cuda::before_replay(device.index, [make, there, made]() mutable {
    if (made.empty()) made = make();
    check(made.size() == there.size(), "fed", made.size(), " tensors where ", there.size(),
          " were captured");
    for (size_t i = 0; i < made.size(); ++i) {
      const Tensor x = made[i].detach().contiguous();
      check(x.shape() == there[i].shape() && x.dtype() == there[i].dtype(), "fed", "a batch of ", x,
            " where ", there[i], " was captured; a captured step needs batches of one shape");
      copy_bytes(there[i].raw_data(), there[i].device(), x.raw_data(), x.device(),
                 x.numel() * item_size(x.dtype()));
    }
    made.clear();
  });
  return there;
}

}  // namespace stretto::nn
