// Layers with recurrent attention in the sizes of their papers.
//
//     nn::LanguageModel model(
//         {.vocabulary = 256, .n_layers = 4, .layer = nn::retnet_layer(256, 4)});
//
// Reference: none (settings)
#pragma once

#include "../transformer.h"

namespace stretto::nn {

/// RetNet (Sun et al. 2023, §2.3): RoPE, multi-scale retention with values of twice the dimension,
/// feed-forward network of 2 d_model with GELU, layer norm.
LayerOptions retnet_layer(int64_t d_model, int64_t n_heads);

/// GLA (Yang et al. 2023, §4.4): queries and keys of half the dimension, SwiGLU, RMS norm.
LayerOptions gla_layer(int64_t d_model, int64_t n_heads);

/// Gated DeltaNet (Yang et al. 2024, §3.4): short convolutions, values of twice the dimension of
/// queries and keys, SwiGLU, RMS norm.
LayerOptions gated_deltanet_layer(int64_t d_model, int64_t n_heads);

/// Kimi Delta Attention (Kimi Team 2025, §3): short convolutions, a decay per feature, SwiGLU, RMS
/// norm.
LayerOptions kda_layer(int64_t d_model, int64_t n_heads);

}  // namespace stretto::nn
