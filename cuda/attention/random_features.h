// Positive random features on the device, of the kinds whose products estimate e^(q·k/√D).
#pragma once

#include "../runtime/kernel.h"

namespace stretto::cuda {

/// Whether the functions below take x [B, H, L, D] and a projection [W, D]: x f32 or bf16, D up to
/// 128, W up to 256, rows of whole pieces of 16 bytes, nothing empty.
STRETTO_KERNEL(bool serves_random_features(const Tensor& x, const Tensor& projection));

/// With u = ω·x D^(−1/4): y [B, H, L, F] = exp(u − less) / √F of F = W features, or of pairs exp(±u
/// − less) / √F, F = 2W; less = ½|x|²/√D + bound, or max u (max |u|).
struct RandomFeatures {
  Tensor projection;  // f32 [W, D], contiguous
  bool pairs, own_max;
  Tensor bound;  // f32 [], or undefined
};
/// y is contiguous. places [B H L] (i32), or undefined: where each row's largest u is, i, of pairs
/// −1 − i where it is negative and the least i32 where it is 0.
STRETTO_KERNEL(void random_features(const Tensor& x, const RandomFeatures& s, const Tensor& y,
                                    const Tensor& places));

/// dx, whose rows lie as those of y in linear_attention.h, from the features y and their gradient
/// g; own_max takes places, others x.
STRETTO_KERNEL(void random_features_backward(const Tensor& x, const RandomFeatures& s,
                                             const Tensor& y, const Tensor& g, const Tensor& places,
                                             const Tensor& dx));

}  // namespace stretto::cuda
