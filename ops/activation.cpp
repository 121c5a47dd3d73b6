#include "ops/activation.h"

#include "autograd/tape.h"
#include "core/formulas/elementwise_math.h"
#include "cuda/activation.h"
#include "ops/dropout.h"
#include "ops/dropout_draws.h"
#include "ops/elementwise.h"

namespace stretto {
namespace {

Tensor composed(const Tensor& x, const Tensor& up, Activation f, double p, RandomKey key) {
  const Tensor y = activate(x, f);
  return dropout(up.defined() ? y * up : y, p, key);
}

template <class T, class F>
STRETTO_CLONES void gated_run(const T* x, const T* up, T* y, int64_t n) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = T(F::value(C(x[i])) * C(up[i]));
}

// dx = g · up · F′(x), dup = g · F(x); dx or dup may be g.
template <class T, class F>
STRETTO_CLONES void gated_slopes_run(const T* x, const T* up, const T* g, T* dx, T* dup,
                                     int64_t n) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const C at = C(x[i]), slope = C(g[i]), other = C(up[i]);
    dx[i] = T(slope * other * F::derivative(at, F::value(at)));
    dup[i] = T(slope * F::value(at));
  }
}

constexpr int64_t chunk = 4096;  // elements at a time, a multiple of 4 (Dropping::run)

// Calls f(first, n) for chunks of a tensor of `count` elements, on all threads.
template <class F>
void for_chunks(int64_t count, F&& f) {
  parallel_for((count + chunk - 1) / chunk, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * chunk; at < std::min(count, end * chunk); at += chunk)
      f(at, std::min(chunk, count - at));
  });
}

Tensor gated_cpu(const Tensor& x, const Tensor& up, Activation f, const Dropping& dropping) {
  Tensor y = empty_like(x);
  dispatch_floating(x.dtype(), "gated_activation", [&]<class T>() {
    const auto run = elementwise::dispatch_activation(f, []<class F>() { return gated_run<T, F>; });
    const T *const from = x.data<T>(), *const other = up.data<T>();
    T* const to = y.data<T>();
    for_chunks(x.numel(), [&](int64_t at, int64_t n) {
      run(from + at, other + at, to + at, n);
      if (dropping.below > 0) dropping.run(to + at, to + at, at, n);
    });
  });
  return y;
}

Tensors gated_slopes_cpu(const Tensor& x, const Tensor& up, const Tensor& g, Activation f,
                         const Dropping& dropping) {
  Tensor dx = in_place_or_new(g), dup = empty_like(x);
  dispatch_floating(x.dtype(), "gated_activation", [&]<class T>() {
    const auto run =
        elementwise::dispatch_activation(f, []<class F>() { return gated_slopes_run<T, F>; });
    const T *const from = x.data<T>(), *const other = up.data<T>(), *const slope = g.data<T>();
    T *const to = dx.data<T>(), *const to_up = dup.data<T>();
    for_chunks(x.numel(), [&](int64_t at, int64_t n) {
      const T* kept = slope + at;
      if (dropping.below > 0) dropping.run(kept, to + at, at, n), kept = to + at;
      run(from + at, other + at, kept, to + at, to_up + at, n);
    });
  });
  return {dx, dup};
}

// Returns both detached, and contiguous unless the kernels take them as they are.
std::pair<Tensor, Tensor> operands(const Tensor& x, const Tensor& up) {
  if (!up.defined()) return {x.detach().contiguous(), up};
  const bool as_they_are = x.device().is_cuda() && cuda::are_halves(x, up);
  return as_they_are ? std::pair(x.detach(), up.detach())
                     : std::pair(x.detach().contiguous(), up.detach().contiguous());
}

}  // namespace

Tensor activate_and_drop(const Tensor& x, const Tensor& up, Activation f, double p, RandomKey key) {
  // Without a gate the CPU's loops are as fast one after the other (ops/feed_forward.cpp fuses them
  // into the product before).
  if (!up.defined() && (p == 0 || x.device().is_cpu())) return composed(x, up, f, p, key);
  const Dropping dropping(p, key);
  const auto [from, other] = operands(x, up);
  const Tensor y = from.device().is_cpu()
                       ? gated_cpu(from, other, f, dropping)
                       : cuda::activate(from, other, f, dropping.below, dropping.factor, key);
  // Gradients: d · up · f′(x) and d · f(x), with d = dropout(g, p, key).
  return record(
      "gated_activation", {x, up}, y,
      [x = Saved(x), up = Saved(up), f, p, key, dropping](Backward& b) {
        if (grad_enabled())
          return composed_gradient(
              b, [&](const Tensors& again) { return composed(again[0], again[1], f, p, key); },
              {x(), up()});
        const auto [in, gate] = operands(x(), up());
        const Tensor grad = b.take_grad();
        Tensor copy;
        const Tensor& g = contiguous(grad, copy);
        return in.device().is_cpu()
                   ? gated_slopes_cpu(in, gate, g, f, dropping)
                   : cuda::activate_backward(in, gate, g, f, dropping.below, dropping.factor, key);
      });
}

Tensor gated_activation(const Tensor& gate, const Tensor& up, Activation f, double p) {
  return gated_activation(gate, up, f, p, p == 0 ? RandomKey() : next_random_key());
}

Tensor gated_activation(const Tensor& gate, const Tensor& up, Activation f, double p,
                        RandomKey key) {
  check(is_floating(gate.dtype()) && gate.dtype() == up.dtype() && gate.shape() == up.shape() &&
            gate.device() == up.device(),
        "gated_activation", "gate ", gate, " and up ", up,
        "; accepted: one shape and device, and one of f32, f64, bf16");
  check(p >= 0 && p <= 1, "gated_activation", "dropout probability ", p, "; accepted: 0 to 1");
  return activate_and_drop(gate, up, f, p, key);
}

}  // namespace stretto
