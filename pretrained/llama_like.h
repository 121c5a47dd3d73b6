// The fields that LLaMA's config.json has in common with those of its descendants; for the readers of
// model types.
#pragma once

#include <functional>
#include <vector>

#include "../nn/models/moe.h"
#include "language_models.h"

namespace stretto::nn::pretrained {

/// What transformers takes for absent fields of a model type.
struct LlamaDefaults {
  double theta = 10000;                         ///< Base of RoPE.
  int64_t max_length = 2048;                    ///< "max_position_embeddings".
  int64_t n_kv_heads = 0;                       ///< 0: as many as query heads.
  int64_t d_head = 0;                           ///< 0: d_model / n_heads.
  int64_t d_hidden = 0;                         ///< "intermediate_size"; 0: it must be present.
  bool tied = false;                            ///< "tie_word_embeddings".
  bool one_rope = true;                         ///< Reads RoPE, the same for all layers.
  double norm_eps = 1e-6;                       ///< "rms_norm_eps".
  const char* activation_field = "hidden_act";  ///< Name of the activation.
  const char* activation = "silu";              ///< Activation.
};

/// Reads sizes, norms, attention, feed-forward network and RoPE; names are those of LLaMA.
LanguageModelConfig llama_like(JsonReader& config, const LlamaDefaults& defaults);

/// The two types of the layers of a model, and the field that lists them.
struct LayerTypes {
  const char* type;                      ///< The type of the layers in question.
  const char* other = "full_attention";  ///< The type of all other layers.
  const char* field = "layer_types";     ///< Name of the list, one entry per layer.
};

/// Returns which layers have `types.type`, by the list of transformers 5 or, without it, the rule
/// of transformers 4 for layer i.
std::vector<bool> layers_of_type(JsonReader& config, int64_t n_layers, const LayerTypes& types,
                                 const std::function<bool(int64_t)>& rule);
/// Returns the window of each layer (0: none), by layers_of_type() "sliding_attention".
std::vector<int64_t> windows(JsonReader& config, int64_t n_layers, int64_t window,
                             const std::function<bool(int64_t)>& slides);
/// Sets the window of each layer. Layers with a window have the position `local`, if it is given.
void set_windows(LanguageModel::Options& options, const std::vector<int64_t>& windows,
                 const MakePositionalEncoding& local = {});

/// Makes the feed-forward networks of some layers experts of another hidden dimension.
void set_experts(JsonReader& config, LanguageModel::Options& options, MoEOptions experts,
                 int64_t d_hidden, const std::function<bool(int64_t)>& has_experts);
/// Reads the experts of Qwen's models, n experts of hidden dimension d_hidden if their fields are
/// absent. All layers have them but those of "mlp_only_layers" and "decoder_sparse_step".
void read_qwen_experts(JsonReader& config, LanguageModel::Options& options, MoEOptions experts,
                       int64_t n, int64_t d_hidden);

}  // namespace stretto::nn::pretrained
