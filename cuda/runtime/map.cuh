// out = f(in...), element by element.
//
// One thread writes each element, once. Operands may have any strides and be broadcast (stride 0).
// If the last dimension is contiguous in out, and contiguous or broadcast in each operand, threads
// move 16 bytes at a time: tensors without gaps, and broadcast rows or columns such as a bias.
// Indices have 32 bits; above 2^30 elements there are several launches. Tested against the CPU's
// functions: single rounded operations are bit-identical.
#pragma once

#include "cuda/runtime/common.cuh"
#include "cuda/runtime/copy.h"

namespace stretto::cuda {

constexpr int map_threads = 256;
constexpr int64_t map_elements = int64_t(1) << 30;  // per launch

/// Operand 0 is the output.
template <int N>
struct Operands {
  void* at[N];
  bool repeats[N] = {};  // along the last dimension
  Layout<N> layout;      // of packs, if there are any
};

template <class T, int V>
__device__ inline Pack<T, V> load_pack(const void* from, int64_t at, bool repeats) {
  const T* p = static_cast<const T*>(from) + at;
  if (!repeats) return *reinterpret_cast<const Pack<T, V>*>(p);
  Pack<T, V> x;
  const T one = *p;
#pragma unroll
  for (int j = 0; j < V; ++j) x.v[j] = one;
  return x;
}

/// Applies f to values in their compute types (f32 for bf16).
template <class Out, int V, class F, class... In>
__device__ inline Pack<Out, V> apply(const F& f, const Pack<In, V>&... x) {
  Pack<Out, V> y;
#pragma unroll
  for (int j = 0; j < V; ++j) y.v[j] = cast<Out>(f(cast<compute_t<In>>(x.v[j])...));
  return y;
}

/// out [n] = f(in [n]...) for n packs, then out [tail] for the elements that fill no pack.
template <int V, class F, class Out, class... In, int... K>
__device__ inline void map_all(const Operands<1 + sizeof...(In)>& to, uint32_t n, uint32_t tail,
                               const F& f, std::integer_sequence<int, K...>) {
  const uint32_t step = gridDim.x * blockDim.x;
#pragma unroll 1
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const auto at = offsets(to.layout, i);
    *reinterpret_cast<Pack<Out, V>*>(static_cast<Out*>(to.at[0]) + at.v[0]) =
        apply<Out, V>(f, load_pack<In, V>(to.at[K + 1], at.v[K + 1], to.repeats[K + 1])...);
  }
  if constexpr (V > 1) {
    if (blockIdx.x == 0 && threadIdx.x < tail) {
      const int64_t i = int64_t(n) * V + threadIdx.x;
      static_cast<Out*>(to.at[0])[i] =
          apply<Out, 1>(f, load_pack<In, 1>(to.at[K + 1], to.repeats[K + 1] ? 0 : i, false)...)
              .v[0];
    }
  }
}

/// map_all() for operands of any shape: n packs of V elements, or n elements if V is 1.
template <int V, class F, class Out, class... In>
__global__ void map_kernel(const __grid_constant__ Operands<1 + sizeof...(In)> to, uint32_t n,
                           uint32_t tail, F f) {
  map_all<V, F, Out, In...>(to, n, tail, f, std::make_integer_sequence<int, sizeof...(In)>());
}

/// Turns the last dimension of `to` into packs of V elements if all of them are aligned.
/// Returns the number of elements after the last pack (0 unless the layout has one dimension),
/// or −1 without packs.
template <int V, int N>
int make_packs(Operands<N>& to, const int64_t (&sizes)[N]) {
  Layout<N>& l = to.layout;
  if (l.dims == 0) return -1;
  const int last = l.dims - 1;
  const int64_t tail = l.sizes[last] % V;
  if (l.sizes[last] < V || (tail > 0 && last > 0)) return -1;
  for (int k = 0; k < N; ++k) {
    const int64_t stride = l.strides[k][last];
    to.repeats[k] = stride == 0;
    if (k > 0 && stride == 0) continue;
    if (stride != 1 || reinterpret_cast<uintptr_t>(to.at[k]) % size_t(sizes[k] * V) != 0) return -1;
    for (int d = 0; d < last; ++d)
      if (l.strides[k][d] % V != 0) return -1;
  }
  for (int k = 0; k < N; ++k) l.strides[k][last] *= V;
  l.sizes[last] /= V;
  l.by[last] = Divider(l.sizes[last]);
  return int(tail);
}

/// True if x, of out's shape, has its smallest stride along another dimension than a row-major out.
inline bool crosses(const Tensor& out, const Tensor& x) {
  return out.is_contiguous() && x.shape() == out.shape() && out.numel() > 0 &&
         plan_tiles(out.shape(), out.strides(), x.strides(), 32, 32 / item_size(x.dtype())).tiles >
             0;
}

/// Writes f of the inputs, broadcast to out's shape, to out. Out and In may be any types of the
/// tensors' element sizes.
template <class Out, class... In, class F, class... Inputs>
void map_as_it_is(const char* name, F f, const Tensor& out, const Inputs&... inputs) {
  constexpr int N = 1 + int(sizeof...(In));
  static_assert(sizeof...(In) == sizeof...(Inputs));
  if (out.numel() == 0) return;
  const Shape strides[N] = {out.strides(),
                            broadcast_strides(inputs.shape(), inputs.strides(), out.shape())...};
  const int64_t sizes[N] = {sizeof(Out), sizeof(In)...};
  char* const data[N] = {static_cast<char*>(out.raw_data()),
                         static_cast<char*>(inputs.raw_data())...};
  constexpr int V = 16 / int(std::max({sizeof(Out), sizeof(In)...}));
  for_parts(make_layout(out.shape(), strides), map_elements,
            [&](const Layout<N>& part, const Offsets<N>& at) {
              Operands<N> to;
              to.layout = part;
              for (int k = 0; k < N; ++k) to.at[k] = data[k] + at.v[k] * sizes[k];
              const int tail = make_packs<V>(to, sizes);
              const uint32_t n = uint32_t(to.layout.numel());
              launch(name, out.device().index,
                     tail < 0 ? map_kernel<1, F, Out, In...> : map_kernel<V, F, Out, In...>,
                     blocks_for(n, map_threads), map_threads, to, n, uint32_t(std::max(tail, 0)),
                     f);
            });
}

/// As map_as_it_is(), but first copies operands whose smallest stride is along another dimension
/// than out's: strided_copy() moves these by tiles, which a map cannot.
template <class Out, class... In, class F, class... Inputs>
void map(const char* name, F f, const Tensor& out, const Inputs&... inputs) {
  [[maybe_unused]] auto straight = [&](const Tensor& x) {
    if (!crosses(out, x)) return x;
    const Tensor copy = empty(x.shape(), options_of(x));
    strided_copy(copy, x);
    return copy;
  };
  map_as_it_is<Out, In...>(name, f, out, straight(inputs)...);
}

}  // namespace stretto::cuda
