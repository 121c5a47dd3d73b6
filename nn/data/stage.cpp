#include "nn/data/stage.h"

#include "core/gpu_runtime.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/view.h"

namespace stretto::nn {

Tensors stage(Device device, const std::function<Tensors()>& make) {
  Tensors made = make(), staged;
  if (device.is_cpu() || !cuda::capturing(device.index)) {
    for (const Tensor& x : made) staged.push_back(x.to(device));
    return staged;
  }
  // A replay copies the inputs before it launches the graph. The inputs therefore need a separate
  // memory pool: memory of the step's pool may also be used by an earlier kernel of the step, and
  // in a replay that kernel would overwrite the inputs.
  {
    const MemoryPool inputs(device);
    const MemoryPool::Use use(inputs);
    for (const Tensor& x : made)
      staged.push_back(empty(x.shape(), {.dtype = x.dtype(), .device = device}));
  }
  cuda::before_replay(device.index, [make, staged, made]() mutable {
    if (made.empty()) made = make();
    check(made.size() == staged.size(), "stage", "got ", made.size(),
          " tensors; the captured step needs ", staged.size());
    for (size_t i = 0; i < made.size(); ++i) {
      const Tensor x = made[i].detach().contiguous();
      check(x.shape() == staged[i].shape() && x.dtype() == staged[i].dtype(), "stage", "got ", x,
            "; the captured step needs ", staged[i]);
      copy_bytes(staged[i].raw_data(), staged[i].device(), x.raw_data(), x.device(),
                 x.numel() * item_size(x.dtype()));
    }
    made.clear();
  });
  return staged;
}

}  // namespace stretto::nn
