// Random features as the paper writes them, in double precision.
//
//   Choromanski et al. 2021   Rethinking Attention with Performers
#pragma once

#include "core/tensor.h"

namespace stretto::reference {

/// h(x') / √m [f_1(ω_1·x') … f_1(ω_m·x'), …, f_l(ω_m·x')] with x' = x·D^(−1/4) (Choromanski et al.,
/// eq. 5), x [B, H, L, D], ω the rows of `projection` [m, D]: the features of the softmax kernel by
/// eq. 7, left (positive) and right (hyperbolic: m becomes 2m), and eq. 6 (trigonometric).
Tensor positive_features(const Tensor& x, const Tensor& projection);
Tensor hyperbolic_features(const Tensor& x, const Tensor& projection);
Tensor trigonometric_features(const Tensor& x, const Tensor& projection);

}  // namespace stretto::reference
