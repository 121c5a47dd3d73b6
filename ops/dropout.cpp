#include "ops/dropout.h"

#include "autograd/tape.h"
#include "cuda/random.h"
#include "ops/dropout_draws.h"
#include "ops/elementwise.h"
#include "ops/on_device.h"

namespace stretto {
namespace {

// Applies dropout, in x's memory if no other handle refers to it.
Tensor dropped_cpu(const Tensor& x, const Dropping& dropping, const Tensor& residual) {
  Tensor y = in_place_or_new(x);
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    const T* from = x.data<T>();
    const T* onto = residual.defined() ? residual.data<T>() : nullptr;
    T* to = y.data<T>();
    parallel_for(x.numel(), 4096, [&](int64_t begin, int64_t end) {
      dropping.run(from + begin, to + begin, begin, end - begin, onto ? onto + begin : nullptr);
    });
  });
  return y;
}

Tensor dropped_cuda(const Tensor& x, const Dropping& d, const Tensor& residual) {
  return cuda::dropout(x, d.below, d.factor, d.key, residual);
}

Tensor dropped(const Tensor& x, const Dropping& d, const Tensor& residual = {}) {
  return on_device(x, dropped_cpu, dropped_cuda, d, residual);
}

void check_probability(const char* op, double p) {
  check(p >= 0 && p <= 1, op, "probability ", p, "; accepted: 0 to 1");
}

}  // namespace

Tensor dropout(const Tensor& x, double p) { return p == 0 ? x : dropout(x, p, next_random_key()); }

Tensor dropout(const Tensor& x, double p, RandomKey key) {
  check_probability("dropout", p);
  check_floating("dropout", x);
  if (p == 0) return x;
  const Dropping dropping(p, key);
  Tensor y = dropped(x.detach().contiguous(), dropping);
  // Gradients: dropout(g, p, key), with the same mask.
  return record("dropout", {x}, y, [=](Backward& b) {
    if (grad_enabled()) return Tensors{dropout(b.grad(), p, key)};
    const Tensor g = b.take_grad();
    Tensor copy;
    return Tensors{dropped(contiguous(g, copy), dropping)};
  });
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p) {
  return p == 0 ? residual + x : dropout_add(x, residual, p, next_random_key());
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, RandomKey key) {
  check_probability("dropout_add", p);
  check(is_floating(x.dtype()) && x.dtype() == residual.dtype() && x.shape() == residual.shape() &&
            x.device() == residual.device(),
        "dropout_add", "got ", x, " and the residual ", residual,
        "; accepted: one shape, and one of f32, f64, bf16");
  if (p == 0) return residual + x;
  const Dropping dropping(p, key);
  Tensor y = dropped(x.detach().contiguous(), dropping, residual.detach().contiguous());
  // Gradients: dx = dropout(g, p, key), with the same mask; the residual's is g.
  return record("dropout_add", {x, residual}, y, [=](Backward& b) {
    if (grad_enabled()) return Tensors{dropout(b.grad(), p, key), b.grad()};
    Tensor copy;
    const Tensor g = b.take_grad();
    Tensors grads(2);
    if (b.needs(1)) grads[1] = g;  // now shared, so dropped() does not overwrite it
    if (b.needs(0)) grads[0] = dropped(contiguous(g, copy), dropping);
    return grads;
  });
}

}  // namespace stretto
