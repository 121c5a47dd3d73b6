// Latent attention as its paper writes it, with keys and values of all heads.
//
//   DeepSeek-AI 2024    DeepSeek-V2
#pragma once

#include "nn/attention/latent_attention.h"

namespace stretto::reference {

/// The output of nn::LatentAttention for x [B, N, d_model] in f64, §2.1, eqs. 9 to 19, with the mask of
/// `options` and further terms of the scores that belong to the features with position, which RoPE rotates
/// if `rope` is not null.
Tensor latent_attention(const nn::LatentAttention& module, const Tensor& x,
                        const RotaryOptions* rope, AttentionOptions options);

}  // namespace stretto::reference
