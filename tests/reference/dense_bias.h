// Biases of attention scores that are no function of the lag alone, as the papers write them, by
// loops in double precision. Query i stands at position i + N − M.
//
//   Li et al. 2024       FIRE: Functional Interpolation for Relative Positions
//   Liu et al. 2021      Swin Transformer
//   Bello et al. 2019    Attention Augmented Convolutional Networks
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace stretto::reference {

/// What FIRE learns, and L0.
struct FireParameters {
  double c = 0, multiplier = 0, threshold = 0;
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

/// Shifted windows (Liu et al., §3.2): attention of an image q, k, v [H, h, w, D] that is rolled by
/// `shift` up and to the left, cut into windows of size × size, and rolled back. A token sees those
/// of its window that were its neighbors before the image was rolled; table as in window_bias.
Tensor shifted_window_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& table, int64_t size, int64_t shift);

}  // namespace stretto::reference
