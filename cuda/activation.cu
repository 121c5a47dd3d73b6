// Activation functions of feed-forward layers with gate and dropout.
//
// A thread computes groups of four elements (eight for bf16), one or two Philox blocks, which it
// loads and stores 16 bytes at a time if all tensors are aligned. Drops the same elements as the CPU
// and rounds as often. Tested against the CPU.
#include "core/formulas/elementwise_math.h"
#include "cuda/activation.h"
#include "cuda/runtime/draws.cuh"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

template <class C>
Drop<C> drop_of(RandomKey key, uint32_t below, double scale, int device) {
  Drop<C> drop{{key}, below, C(scale)};
  if (below > 0) drop.key = draw_key(key, device);
  return drop;
}

/// Where a group of elements of x, up and their gradients lies: rows of `groups` groups are `step`
/// elements apart. No rows (0 groups): the tensors are contiguous.
struct Columns {
  Divider groups;
  uint64_t step;

  template <class T>
  __device__ GroupAt<T> at(uint64_t group, const GroupAt<T>& out) const {
    if (groups.size == 0) return out;
    const uint64_t row = groups.quotient(group);
    const uint64_t first = row * step + (group - row * groups.size) * at_once<T>;
    return {first, first + at_once<T>, out.packs};
  }
};

/// out [n] = F(x [n]) · up [n] with dropout; `up` may be null
template <class F, class T>
__global__ void activate_all(T* out, const T* x, const T* up, Drop<compute_t<T>> drop,
                             Columns columns, uint64_t n, bool packs) {
  using C = compute_t<T>;
  constexpr int V = at_once<T>;
#pragma unroll 1
  for (uint64_t group = thread_index(); group * V < n; group += thread_count()) {
    const GroupAt<T> at{group * V, n, packs};
    const GroupAt<T> from = columns.at(group, at);
    const Group<T> in = from.load(x), gate = up ? from.load(up) : Group<T>{};
    C y[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      y[j] = F::value(cast<C>(in.v[j]));
      if (up) y[j] *= cast<C>(gate.v[j]);
      y[j] = cast<C>(cast<T>(y[j]));  // rounded once more by dropout, as on the CPU
    }
    drop_group(y, drop, group);
    at.store(out, y);
  }
}

/// dx [n] = d · up · F′(x), dup [n] = d · F(x) with d = g [n] after dropout; up and dup may be null
template <class F, class T>
__global__ void activate_slopes(T* dx, T* dup, const T* x, const T* up, const T* g,
                                Drop<compute_t<T>> drop, Columns columns, uint64_t n, bool packs) {
  using C = compute_t<T>;
  constexpr int V = at_once<T>;
#pragma unroll 1
  for (uint64_t group = thread_index(); group * V < n; group += thread_count()) {
    const GroupAt<T> at{group * V, n, packs};
    const GroupAt<T> from = columns.at(group, at);
    const Group<T> in = from.load(x), slope = at.load(g), gate = up ? from.load(up) : Group<T>{};
    C d[V], e[V];
#pragma unroll
    for (int j = 0; j < V; ++j) d[j] = cast<C>(slope.v[j]);
    drop_group(d, drop, group);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C v = cast<C>(in.v[j]), value = F::value(v), kept = cast<C>(cast<T>(d[j]));
      e[j] = kept * value;
      d[j] = (up ? kept * cast<C>(gate.v[j]) : kept) * F::derivative(v, value);
    }
    from.store(dx, d);
    if (dup) from.store(dup, e);
  }
}

template <class T>
struct Kernels {
  decltype(&activate_all<elementwise::Relu, T>) forward;
  decltype(&activate_slopes<elementwise::Relu, T>) backward;
};
template <class F, class T>
Kernels<T> kernels_of() {
  return {activate_all<F, T>, activate_slopes<F, T>};
}
template <class T>
Kernels<T> kernels(Activation f) {
  return elementwise::dispatch_activation(f, [&]<class F>() { return kernels_of<F, T>(); });
}

bool are_aligned(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (p && !aligned(p)) return false;
  return true;
}

Columns columns_of(const Tensor& x) {
  if (x.is_contiguous()) return {Divider(0), 0};
  const int64_t once = x.dtype() == bf16 ? at_once<BFloat16> : at_once<float>;
  return {Divider(x.size(-1) / once), uint64_t(2 * x.size(-1))};
}

}  // namespace

bool are_halves(const Tensor& x, const Tensor& up) {
  if (x.dim() == 0) return false;
  const Tensor block = join_parts({x, up}, -1);
  return block.defined() && block.is_contiguous() && x.size(-1) % at_once<BFloat16> == 0;
}

Tensor activate(const Tensor& x, const Tensor& up, Activation f, uint32_t below, double scale,
                RandomKey key) {
  Tensor out = empty_like(x);
  if (x.numel() == 0) return out;
  const Columns columns = columns_of(x);
  const int device = x.device().index;
  dispatch_floating(x.dtype(), "activate", [&]<class T>() {
    const auto drop = drop_of<compute_t<T>>(key, below, scale, device);
    const T *const in = x.data<T>(), *const gate = data_or_null<T>(up);
    launch("activate", device, kernels<T>(f).forward, blocks_for(x.numel(), 4 * threads), threads,
           out.data<T>(), in, gate, drop, columns, uint64_t(x.numel()),
           are_aligned({out.raw_data(), in, gate}));
  });
  return out;
}

Tensors activate_backward(const Tensor& x, const Tensor& up, const Tensor& g, Activation f,
                          uint32_t below, double scale, RandomKey key) {
  Tensor dx, dup;
  const Columns columns = columns_of(x);
  if (x.is_contiguous()) {
    dx = empty_like(x), dup = up.defined() ? empty_like(x) : Tensor();
  } else {
    Shape block = x.shape();
    block.back() *= 2;
    const Tensors halves = split_into_parts(empty_like(x, block), -1, {x.size(-1), x.size(-1)});
    dx = halves[0], dup = halves[1];
  }
  if (x.numel() == 0) return {dx, dup};
  const int device = x.device().index;
  dispatch_floating(x.dtype(), "activate backward", [&]<class T>() {
    const auto drop = drop_of<compute_t<T>>(key, below, scale, device);
    const T *const in = x.data<T>(), *const gate = data_or_null<T>(up), *const slope = g.data<T>();
    T* const of_gate = data_or_null<T>(dup);
    launch("activate_backward", device, kernels<T>(f).backward, blocks_for(x.numel(), 4 * threads),
           threads, dx.data<T>(), of_gate, in, gate, slope, drop, columns, uint64_t(x.numel()),
           are_aligned({dx.raw_data(), of_gate, in, gate, slope}));
  });
  return {dx, dup};
}

}  // namespace stretto::cuda
