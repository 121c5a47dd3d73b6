// Linear attention with decay per feature, forward (gated_features.cuh). Tested against the CPU.
#include "cuda/attention/gated_features.cuh"

namespace stretto::cuda::gated {
namespace {

/// y, the states before every 64 positions (if a.states) and the state after the last. Grid: B H P
template <class K>
__global__ void __launch_bounds__(feature_threads, 1)
    gated_features_forward(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char memory[];
  const Unit<K> unit(a);
  FeatureGroup<K, false> of(a, unit, memory);
  const auto s = of.memory.state(0);
  load_state(s, unit, a, unit.of(a.state, a, unit.head));
#pragma unroll 1
  for (int first = 0; first < a.n; first += group) {
    of.load(first);
    if (a.states && first % chunk == 0)
      store_state(s, unit, a, unit.of(a.states, a, unit.head * unit.chunks(a) + first / chunk));
    of.prepare();
    if (of.has_columns()) {
      of.compute_values(s);
      of.attend(s);
      of.advance(s, s);
    }
    __syncthreads();
  }
  store_state(s, unit, a, unit.of(a.state, a, unit.head));
}

}  // namespace

void forward_features(const Args& a, unsigned blocks, int device) {
  with_kind(a.f, a.beta, [&]<class K>() {
    launch_with_shared("gated_linear_attention", device, gated_features_forward<K>, blocks,
                       feature_threads, FeatureMemory<K, false>::bytes, a);
  });
}

}  // namespace stretto::cuda::gated
