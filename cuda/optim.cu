// Optimisers' steps, in place: every element is read and written once, by one thread.
#include "cuda/common.cuh"
#include "cuda/optim.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

/// Element i of a weight in the precision of the step: its master copy unless it was set from
/// outside.
template <class P, class T>
__device__ inline T load(const P* w, const T* master, int64_t i) {
  if constexpr (std::is_same_v<P, BFloat16>)
    return cast<BFloat16>(master[i]).bits == w[i].bits ? master[i] : cast<T>(w[i]);
  else
    return w[i];
}

template <class P, class T>
__device__ inline void store(P* w, T* master, int64_t i, T value) {
  if constexpr (std::is_same_v<P, BFloat16>) master[i] = value;
  w[i] = cast<P>(value);
}

/// w, grad, master (bf16) and b (null without momentum), all [n]
template <class P, class T>
__global__ void sgd(P* w, const P* grad, T* master, T* b, int64_t n, SgdRule<T> rule) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const T x = load(w, master, i), g = cast<T>(grad[i]);
    store(w, master, i, b ? rule.with_momentum(x, g, b[i]) : rule.plain(x, g));
  }
}

/// w, grad, master (bf16), m, v and v_max (null without amsgrad), all [n]
template <class P, class T>
__global__ void adam(P* w, const P* grad, T* master, T* m, T* v, T* v_max, int64_t n,
                     AdamRule<T> rule) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const T x = load(w, master, i);
    rule.moments(x, cast<T>(grad[i]), m[i], v[i]);
    T second = v[i];
    if (v_max) v_max[i] = second = v_max[i] > second ? v_max[i] : second;
    store(w, master, i, rule.stepped(x, m[i], second));
  }
}

template <class T>
T* data_of(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

}  // namespace

void sgd_step(const Tensor& weight, const Tensor& gradient, const Tensor& master,
              const Tensor& momentum, const SgdStep& step) {
  const int64_t n = weight.numel();
  if (n == 0) return;
  dispatch_floating(weight.dtype(), "sgd_step", [&](auto tag) {
    using P = typename decltype(tag)::type;
    using T = compute_t<P>;
    launch("sgd_step", weight.device().index, sgd<P, T>, blocks_for(n, threads), threads,
           weight.data<P>(), gradient.data<P>(), data_of<T>(master), data_of<T>(momentum), n,
           SgdRule<T>(step));
  });
}

void adam_step(const Tensor& weight, const Tensor& gradient, const Tensor& master, const Tensor& m,
               const Tensor& v, const Tensor& v_max, const AdamStep& step) {
  const int64_t n = weight.numel();
  if (n == 0) return;
  dispatch_floating(weight.dtype(), "adam_step", [&](auto tag) {
    using P = typename decltype(tag)::type;
    using T = compute_t<P>;
    launch("adam_step", weight.device().index, adam<P, T>, blocks_for(n, threads), threads,
           weight.data<P>(), gradient.data<P>(), data_of<T>(master), m.data<T>(), v.data<T>(),
           data_of<T>(v_max), n, AdamRule<T>(step));
  });
}

}  // namespace stretto::cuda
