#include "ops/dropout.h"

#include "autograd/tape.h"
#include "cuda/random.h"
#include "ops/dropout_draws.h"
#include "ops/on_device.h"

namespace stretto {
namespace {

// In x's place where nothing else holds it.
Tensor dropped_cpu(const Tensor& x, const Dropping& dropping) {
  Tensor y = in_place_or_new(x);
  dispatch_floating(x.dtype(), "dropout", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(x.numel(), 4096, [&](int64_t begin, int64_t end) {
      dropping.run(from + begin, to + begin, begin, end - begin);
    });
  });
  return y;
}

Tensor dropped_cuda(const Tensor& x, const Dropping& d) {
  return cuda::dropout(x, d.below, d.factor, d.key);
}

}  // namespace

Tensor dropout(const Tensor& x, double p) { return p == 0 ? x : dropout(x, p, next_random_key()); }

Tensor dropout(const Tensor& x, double p, RandomKey key) {
  check(p >= 0 && p <= 1, "dropout", "probability ", p, "; accepted: 0 to 1");
  check(is_floating(x.dtype()), "dropout", "got ", x, "; accepted: f32, f64, bf16");
  if (p == 0) return x;
  const Dropping dropping(p, key);
  Tensor y = on_device(x.detach().contiguous(), dropped_cpu, dropped_cuda, dropping);
  // Gradients: dropout(g, p, key): the same draws.
  return record("dropout", {x}, y, [=](Backward& b) {
    if (grad_enabled()) return Tensors{dropout(b.grad(), p, key)};
    const Tensor g = b.take_grad();
    Tensor copy;
    return Tensors{on_device(contiguous(g, copy), dropped_cpu, dropped_cuda, dropping)};
  });
}

}  // namespace stretto
