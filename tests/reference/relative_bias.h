// Biases of attention scores as the papers write them, by loops in double precision: what is added
// to the score of query i and key j, as a whole matrix. Query i stands at position i + N − M.
//
//   Raffel et al. 2020   T5: Exploring the Limits of Transfer Learning
//   Press et al. 2022    ALiBi: Train Short, Test Long
//   Chi et al. 2022      KERPLE: Kernelized Relative Positional Embedding
//   Li et al. 2024       FIRE: Functional Interpolation for Relative Positions
//   Liu et al. 2021      Swin Transformer
//   Bello et al. 2019    Attention Augmented Convolutional Networks
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace stretto::reference {

/// The bucket of a relative position, with logarithms as in the authors' code. Where a distance is
/// exactly the first of a bucket rounding decides; with their 32 buckets and 128 it decides
/// rightly.
int64_t t5_bucket_by_logarithms(int64_t relative, int64_t buckets, double max_distance,
                                bool two_sided);

/// table [buckets, H] → [H, M, N] (Raffel et al., §2.1).
Tensor t5_bias(const Tensor& table, int64_t m, int64_t n, double max_distance, bool two_sided);

/// → [H, M, N] (Press et al., §3). The slopes by the authors' recursion.
Tensor alibi_bias(int64_t heads, int64_t m, int64_t n);

/// p, a [H] → [H, M, N]: −p log(1 + a|i − j|) and −a|i − j|^p (Chi et al.).
Tensor kerple_log_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n);
Tensor kerple_power_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n);

/// What FIRE learns, and L0.
struct FireParameters {
  double c = 0, multiplier = 0, length = 0;
  Tensor weight1, bias1;  // [hidden, 1], [hidden]
  Tensor weight2, bias2;  // [H, hidden], [H]
};
/// → [H, M, N] (Li et al.).
Tensor fire_bias(const FireParameters& fire, int64_t m, int64_t n);

/// table [(2h − 1)(2w − 1), H] → [H, hw, hw] (Liu et al., eq. 4).
Tensor window_bias(const Tensor& table, int64_t h, int64_t w);

/// q [B, H, hw, D], tables [H, 2h − 1, D] and [H, 2w − 1, D] → [B, H, hw, hw] (Bello et al., eq. 3
/// and 4, without the scale).
Tensor grid_logits(const Tensor& q, const Tensor& height, const Tensor& width);

}  // namespace stretto::reference
