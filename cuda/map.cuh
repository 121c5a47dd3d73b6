// out = f(in...), element by element.
//
// Every element is written once, by one thread. Operands may have any strides and repeat (stride
// 0). Where all lie contiguous, threads move 16 bytes at a time.
#pragma once

#include <array>

#include "cuda/common.cuh"

namespace stretto::cuda {

constexpr int map_threads = 256;

template <class In, int N>
struct Inputs {
  const In* at[N == 0 ? 1 : N] = {};
  bool repeats[N == 0 ? 1 : N] = {};  // one value for all; for map_packs
};

/// f of N numbers, in the compute type of In: f32 for bf16.
template <class Out, int N, class In, class F>
__device__ inline Out apply(const F& f, const In* x) {
  using C = compute_t<In>;
  if constexpr (N == 0) return cast<Out>(f());
  if constexpr (N == 1) return cast<Out>(f(cast<C>(x[0])));
  if constexpr (N == 2) return cast<Out>(f(cast<C>(x[0]), cast<C>(x[1])));
}

/// out [n] = f(in [n]...), any strides; operand 0 of the layout is out.
template <class Out, class In, int N, class F>
__global__ void map_strided(Out* out, const Inputs<In, N> in,
                            const __grid_constant__ Layout<N + 1> layout, int64_t n, F f) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<N + 1> at = offsets(layout, i);
    In x[N == 0 ? 1 : N];
    for (int k = 0; k < N; ++k) x[k] = in.at[k][at.v[k + 1]];
    out[at.v[0]] = apply<Out, N>(f, x);
  }
}

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T v[V];
};

/// The same for contiguous operands (or ones that repeat one value), aligned for packs of V.
template <int V, class Out, class In, int N, class F>
__global__ void map_packs(Out* out, const Inputs<In, N> in, int64_t n, F f) {
  const int64_t packs = n / V;
  for (int64_t i = thread_index(); i < packs; i += thread_count()) {
    Pack<In, V> x[N == 0 ? 1 : N];
    for (int k = 0; k < N; ++k) {
      if (in.repeats[k]) {
        for (int j = 0; j < V; ++j) x[k].v[j] = in.at[k][0];
      } else {
        x[k] = reinterpret_cast<const Pack<In, V>*>(in.at[k])[i];
      }
    }
    Pack<Out, V> y;
    for (int j = 0; j < V; ++j) {
      In one[N == 0 ? 1 : N];
      for (int k = 0; k < N; ++k) one[k] = x[k].v[j];
      y.v[j] = apply<Out, N>(f, one);
    }
    reinterpret_cast<Pack<Out, V>*>(out)[i] = y;
  }
  for (int64_t i = packs * V + thread_index(); i < n; i += thread_count()) {
    In x[N == 0 ? 1 : N];
    for (int k = 0; k < N; ++k) x[k] = in.at[k][in.repeats[k] ? 0 : i];
    out[i] = apply<Out, N>(f, x);
  }
}

/// Launches f over out's shape; the inputs broadcast to it. Out and In may be any types of the
/// tensors' element sizes.
template <class Out, class In, int N, class F>
void map(const char* name, const Tensor& out, const std::array<const Tensor*, N>& inputs, F f) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const int device = out.device().index;
  Shape strides[N + 1] = {out.strides()};
  Inputs<In, N> in;
  for (int k = 0; k < N; ++k) {
    strides[k + 1] = broadcast_strides(inputs[k]->shape(), inputs[k]->strides(), out.shape());
    in.at[k] = static_cast<const In*>(inputs[k]->raw_data());
  }
  const Layout<N + 1> layout = make_layout(out.shape(), strides);
  Out* const to = static_cast<Out*>(out.raw_data());

  constexpr int V = 16 / int(sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In));
  auto aligned = [](const void* p, size_t bytes) {
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
  };
  bool packs = layout.dims == 1 && layout.strides[0][0] == 1 && aligned(to, sizeof(Out) * V);
  for (int k = 0; k < N; ++k) {
    const int64_t stride = layout.strides[k + 1][0];
    in.repeats[k] = stride == 0;
    packs = packs && (stride == 0 || (stride == 1 && aligned(in.at[k], sizeof(In) * V)));
  }
  if (packs) {
    launch(name, device, map_packs<V, Out, In, N, F>, blocks_for(n, map_threads * V), map_threads,
           to, in, n, f);
  } else {
    launch(name, device, map_strided<Out, In, N, F>, blocks_for(n, map_threads), map_threads, to,
           in, layout, n, f);
  }
}

}  // namespace stretto::cuda
