// Biases of attention scores that depend on more than the relative position, as the papers write
// them, by loops in double precision. Query i is at position i + N − M.
//
//   Li et al. 2024       FIRE: Functional Interpolation for Relative Positions
//   Liu et al. 2021      Swin Transformer
//   Bello et al. 2019    Attention Augmented Convolutional Networks
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace stretto::reference {

/// The parameters of FIRE: c, the multiplier m of the threshold, the threshold L0, and an MLP
/// 1 → hidden → H.
struct FireParameters {
  double c = 0, multiplier = 0, threshold = 0;
  Tensor weight1, bias1;  // [hidden, 1], [hidden]
  Tensor weight2, bias2;  // [H, hidden], [H]
};
/// Computes the bias of FIRE (Li et al.) [H, M, N],
/// MLP(log(|c (i − j)| + 1) / (log(|c max(i, |m L0|)| + 1) + 1e-6)).
Tensor fire_bias(const FireParameters& fire, int64_t m, int64_t n);

/// Computes the relative position bias of a window of h × w cells (Liu et al., eq. 4):
/// table [(2h − 1)(2w − 1), H] → [H, hw, hw].
Tensor swin_bias(const Tensor& table, int64_t h, int64_t w);

/// Computes the relative logits of an h × w grid (Bello et al., eqs. 3 and 4, without the scale):
/// q [B, H, hw, D], tables [H, 2h − 1, D] and [H, 2w − 1, D] → [B, H, hw, hw].
Tensor grid_logits(const Tensor& q, const Tensor& height, const Tensor& width);

/// Computes attention with shifted windows (Liu et al., §3.2) of an image, q, k, v [H, h, w, D] →
/// [H, h, w, D]: the image is rolled by `shift` up and to the left, cut into windows of size ×
/// size, and rolled back. A token sees the tokens of its window except those that came from the
/// opposite edge of the image. The table is that of swin_bias().
Tensor shifted_window_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& table, int64_t size, int64_t shift);

}  // namespace stretto::reference
