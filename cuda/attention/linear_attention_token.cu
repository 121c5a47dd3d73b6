// One token of linear attention: S += k [v, 1]ᵀ, y = q S / (q z + eps), a block per key head.
//
// Warp w has features w, w + 8, …, a lane every 32nd column of the state's rows, so that these are
// read and written once, contiguously. The warps' sums are added in shared memory. The first head
// of a key head writes the state, the others read it. Tested against the CPU.
#include "cuda/attention/linear_attention.cuh"

namespace stretto::cuda {
namespace linear {
namespace {

constexpr int warps = threads / 32;

template <class T>
struct Token {
  HeadRows<const T> q, k, v;
  HeadRows<T> y;
  const uint8_t* hidden;  // [B]
  const float* before;    // [B, G, F, Dv + 1]
  float* after;
  int heads, groups, f, dv;
  float eps;
};

/// grid: B G
template <class T>
__global__ void __launch_bounds__(threads) linear_attention_tokens(const Token<T> a) {
  extern __shared__ float sums[];  // [8, Dv + 1]
  const int b = int(blockIdx.x) / a.groups, kh = int(blockIdx.x) % a.groups,
            per_group = a.heads / a.groups, warp = int(threadIdx.x) / 32, lane = lane_index(),
            width = a.dv + 1;
  const bool adds = !(a.hidden && a.hidden[b]);
  const int64_t first = int64_t(blockIdx.x) * a.f * width;
  const T *const k = a.k.at(b, kh), *const v = a.v.at(b, kh);
#pragma unroll 1
  for (int h = kh * per_group; h < (kh + 1) * per_group; ++h) {
    const T* const q = a.q.at(b, h);
    const bool writes = h == kh * per_group;
#pragma unroll 1
    for (int column = lane; column < width; column += 32) {
      const float value = !adds ? 0 : column < a.dv ? cast<float>(v[column]) : 1;
      float sum = 0;
#pragma unroll 4
      for (int i = warp; i < a.f; i += warps) {
        float* const to = a.after + first + i * width + column;
        float s = writes ? a.before[first + i * width + column] : *to;
        if (writes) {
          if (adds) s += cast<float>(k[i]) * value;
          *to = s;
        }
        sum += cast<float>(q[i]) * s;
      }
      sums[warp * width + column] = sum;
    }
    __syncthreads();
    const auto all = [&](int column) {
      float total = sums[column];
#pragma unroll
      for (int w = 1; w < warps; ++w) total += sums[w * width + column];
      return total;
    };
    const float total = all(a.dv) + a.eps;
#pragma unroll 1
    for (int i = int(threadIdx.x); i < a.dv; i += threads)
      a.y.at(b, h)[i] = cast<T>(total == 0 ? 0 : all(i) / total);
    __syncthreads();
  }
}

}  // namespace
}  // namespace linear

using namespace linear;

void linear_attention_token(const LinearAttentionOperands& in, const Tensor& y,
                            const Tensor& after) {
  dispatch_among<float, BFloat16>(in.q.dtype(), [&]<class T>() {
    const Sizes s = sizes_of(in.q, in.k, in.v);
    const Token<T> args = {.q = head_rows<const T>(in.q),
                           .k = head_rows<const T>(in.k),
                           .v = head_rows<const T>(in.v),
                           .y = head_rows<T>(y),
                           .hidden = data_or_null<uint8_t>(in.padding),
                           .before = in.before.data<float>(),
                           .after = after.data<float>(),
                           .heads = s.heads,
                           .groups = s.groups,
                           .f = s.f,
                           .dv = s.dv,
                           .eps = float(in.eps)};
    launch_with_shared("linear_attention_token", in.q.device().index, linear_attention_tokens<T>,
                       unsigned(in.k.size(0) * in.k.size(1)), threads, 4 * warps * (s.dv + 1),
                       args);
  });
}

}  // namespace stretto::cuda
