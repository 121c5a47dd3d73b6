// Positive random features on the device, whose products estimate e^(q·k/√D).
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// True if the functions below support x [B, H, L, D] and a projection [W, D]: x f32 or bf16, D up
/// to 128, W up to 256, rows in multiples of 16 bytes, no empty tensor.
STRETTO_KERNEL(bool serves_random_features(const Tensor& x, const Tensor& projection));

/// With u = ω·x D^(−1/4): y [B, H, L, F] = exp(u − shift) / √F with F = W features or,
/// with pairs, exp(±u − shift) / √F with F = 2W. shift = ½|x|²/√D + bound or, with
/// own_max, max u (pairs: max |u|).
struct RandomFeatures {
  Tensor projection;  // f32 [W, D], contiguous
  bool pairs, own_max;
  Tensor bound;  // f32 [], or undefined
};
/// Returns `bound` for the projection: max(0, ½ max |ω|² − limit) over its rows ω, summed in f64.
STRETTO_KERNEL(Tensor random_feature_bound(const Tensor& projection, double limit));
/// y is contiguous. places [B H L] (i32), or undefined, receives the index i of each row's maximum;
/// with pairs, −1 − i if u is negative there.
STRETTO_KERNEL(void random_features(const Tensor& x, const RandomFeatures& s, const Tensor& y,
                                    const Tensor& places));

/// dx, whose rows are laid out like those of y in linear_attention.h, from the features y and their
/// gradient g; with own_max from `places`, else from x.
STRETTO_KERNEL(void random_features_backward(const Tensor& x, const RandomFeatures& s,
                                             const Tensor& y, const Tensor& g, const Tensor& places,
                                             const Tensor& dx));

}  // namespace stretto::cuda
