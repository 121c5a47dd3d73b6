// Shared by the two kernels of attention of few queries: how keys are split.
#pragma once

#include "cuda/attention/attention.cuh"

namespace stretto::cuda {

/// How keys are split, and the results per tile of rows and split: the sums of values [2, D / 8,
/// 8, 4, 2], in the layout of registers, and as marks of each row the exponent that was subtracted
/// and the sum of weights.
struct Splits {
  static constexpr int tile_rows = 16, warps = 4;  // of a block
  float2 *sums, *marks;
  int begin, per_split, count, row_tiles, clip;
};

/// The query in row r of a tile: its head, its index, and whether there is one.
struct Query {
  int h, i;
  bool in_range;
  __device__ Query(const AttentionArgs& a, int kh, int r)
      : h(kh * a.sizes.per_group + r / a.sizes.m),
        i(r % a.sizes.m),
        in_range(r < a.sizes.per_group * a.sizes.m) {}
};

/// Adds the splits in their order. (float, 64), (BFloat16, 64) and (BFloat16, 128) are defined.
template <class T, int D>
void launch_decode_sums(const AttentionArgs& a, const Splits& s, int device);

}  // namespace stretto::cuda
