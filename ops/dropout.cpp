#include "ops/dropout.h"

#include <cmath>

#include "autograd/tape.h"
#include "cuda/random.h"
#include "ops/loops.h"

namespace stretto {
namespace {

template <class T>
STRETTO_CLONES void drop_run(const T* x, const uint32_t* draws, T* y, int64_t n, uint32_t below,
                             compute_t<T> scale) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = T((draws[i] >> 8) < below ? C(0) : C(x[i]) * scale);
}

// In x's place where nothing else holds it.
Tensor dropped_cpu(const Tensor& x, uint32_t below, double factor, RandomKey key) {
  Tensor y = in_place_or_new(x);
  dispatch_floating(x.dtype(), "dropout", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    constexpr int64_t chunk = 4096;
    parallel_for(x.numel(), chunk, [&](int64_t begin, int64_t end) {
      uint32_t draws[chunk];
      philox_blocks(key, uint64_t(begin / 4), (end - begin + 3) / 4, draws);
      drop_run(from + begin, draws, to + begin, end - begin, below, compute_t<T>(factor));
    });
  });
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double p) { return p == 0 ? x : dropout(x, p, next_random_key()); }

Tensor dropout(const Tensor& x, double p, RandomKey key) {
  check(p >= 0 && p <= 1, "dropout", "probability ", p, "; accepted: 0 to 1");
  check(is_floating(x.dtype()), "dropout", "got ", x, "; accepted: f32, f64, bf16");
  if (p == 0) return x;
  const auto below = uint32_t(std::ceil(p * 16777216.0));  // draws are whole multiples of 2⁻²⁴
  const double factor = p == 1 ? 0 : 1 / (1 - p);
  Tensor y = on_device(x.detach().contiguous(), dropped_cpu, cuda::dropout, below, factor, key);
  // Gradients: dropout(g, p, key): the same draws.
  return record("dropout", {x}, y, [=](Backward& b) {
    if (grad_enabled()) return Tensors{dropout(b.grad(), p, key)};
    const Tensor g = b.take_grad();
    Tensor copy;
    return Tensors{on_device(contiguous(g, copy), dropped_cpu, cuda::dropout, below, factor, key)};
  });
}

}  // namespace stretto
