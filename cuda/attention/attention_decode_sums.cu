// Fused attention of few queries: adds the results of the splits of the keys (attention_decode.cu).
// Tested against the composed implementation in f64.
#include "cuda/attention/attention_decode.cuh"

namespace stretto::cuda {
namespace {

constexpr int tile_rows = Splits::tile_rows, warps = Splits::warps;
constexpr uint32_t all_lanes = 0xffffffffu;

/// out [B, H, M, Dv] from the sums and marks of splits; a warp per query
template <class T, int D>
__global__ void __launch_bounds__(warps * 32)
    attention_decode_sums(const __grid_constant__ AttentionArgs a,
                          const __grid_constant__ Splits s) {
  constexpr int V = pack_size<T>, tiles = D / 8;
  __shared__ float2 places[warps][D / 2 + D / 64 * V];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, t = lane % 4;
  const int index = int(blockIdx.x) * warps + warp;
  if (index >= a.sizes.batch * a.sizes.heads * a.sizes.m) return;
  const int i = index % a.sizes.m, h = index / a.sizes.m % a.sizes.heads,
            b = index / a.sizes.m / a.sizes.heads;
  const int groups = a.sizes.heads / a.sizes.per_group, unit = b * groups + h / a.sizes.per_group;
  const int row = h % a.sizes.per_group * a.sizes.m + i, r = row % tile_rows;
  const int64_t block = (int64_t(unit) * s.row_tiles + row / tile_rows) * s.count;
  const float2* const marks = s.marks + block * tile_rows + r;
  const float2* const sums = s.sums + (block * 2 + r / 8) * tiles * 32 + r % 8 * 4 + t;
  float top = -1e30f;
#pragma unroll 1
  for (int x = lane; x < s.count; x += 32) top = fmaxf(top, marks[x * tile_rows].x);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    top = fmaxf(top, __shfl_xor_sync(all_lanes, top, lanes));
  const float sink = a.sinks ? a.sinks[h] : -INFINITY;
  top = fmaxf(top, sink);
  float total = ptx::ex2(sink - top);
  float2 value[D / 64] = {};
#pragma unroll 4
  for (int x = 0; x < s.count; ++x) {
    const float2 mark = marks[x * tile_rows];
    const float factor = ptx::ex2(mark.x - top);
    total += factor * mark.y;
#pragma unroll
    for (int c = 0; c < D / 64; ++c) {
      const float2 y = sums[(int64_t(x) * 2 * tiles + c * 8 + lane / 4) * 32];
      value[c].x += factor * y.x;
      value[c].y += factor * y.y;
    }
  }
  const float by = total == 0 ? 0.f : 1 / total;
  // Reorders columns from the registers' layout to a row's; a gap after every 32
  // avoids bank conflicts.
  float* const place = reinterpret_cast<float*>(places[warp]);
#pragma unroll
  for (int c = 0; c < D / 64; ++c) {
    const int n = c * 8 + lane / 4, column = n / V * 8 * V + 2 * V * t + n % V;
    place[column + column / 32 * V] = value[c].x * by;
    place[column + V + (column + V) / 32 * V] = value[c].y * by;
  }
  __syncwarp();
#pragma unroll
  for (int c = 0; c < D / 64; ++c) {
    const int column = c * 64 + 2 * lane;
    const float2 x = *reinterpret_cast<const float2*>(place + column + column / 32 * V);
    if (column < a.results.out.chunks * 8)
      *reinterpret_cast<Pack<T, 2>*>(a.results.out.at<T>(b, h, i) + column) = {cast<T>(x.x),
                                                                               cast<T>(x.y)};
  }
}

}  // namespace

template <class T, int D>
void launch_decode_sums(const AttentionArgs& a, const Splits& s, int device) {
  launch("attention", device, attention_decode_sums<T, D>,
         unsigned(ceil_div(int64_t(a.sizes.batch) * a.sizes.heads * a.sizes.m, int64_t(warps))),
         warps * 32, a, s);
}
template void launch_decode_sums<float, 64>(const AttentionArgs&, const Splits&, int);
template void launch_decode_sums<BFloat16, 64>(const AttentionArgs&, const Splits&, int);
template void launch_decode_sums<BFloat16, 128>(const AttentionArgs&, const Splits&, int);

}  // namespace stretto::cuda
