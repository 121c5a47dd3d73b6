// Random features of the softmax kernel as the paper writes them, in double precision: unbiased
// estimates of e^(q·k/√D) are products of the features of q and k.
//
//   Choromanski et al. 2021   Rethinking Attention with Performers
#pragma once

#include "core/tensor.h"

namespace stretto::reference {

/// All are h(x') / √m [f_1(ω_1·x') … f_1(ω_m·x'), …, f_l(ω_m·x')] with x' = x·D^(−1/4)
/// (Choromanski et al., eq. 5), x [B, H, L, D] and ω the rows of `projection` [m, D].
///
/// Computes positive features [B, H, L, m] (eq. 7, left).
Tensor positive_features(const Tensor& x, const Tensor& projection);
/// Computes hyperbolic features [B, H, L, 2m], positive ones of ω and of −ω (eq. 7, right).
Tensor hyperbolic_features(const Tensor& x, const Tensor& projection);
/// Computes trigonometric features [B, H, L, 2m], cosines, then sines (eq. 6).
Tensor trigonometric_features(const Tensor& x, const Tensor& projection);

}  // namespace stretto::reference
