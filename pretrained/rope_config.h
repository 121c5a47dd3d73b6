// RoPE by the fields of config.json; for pretrained/language_models.cpp.
#pragma once

#include "../nn/positions/rotary.h"
#include "files/json_reader.h"

namespace stretto::nn::pretrained {

using files::JsonReader;

/// Fields of RoPE outside of "rope_parameters", with the defaults of transformers.
struct RopeFields {
  double theta = 10000;                    ///< Base of the frequencies.
  int64_t max_length = 2048;               ///< "max_position_embeddings".
  const char* theta_field = "rope_theta";  ///< Name of theta; null: it has no field.
  const char* share_field = nullptr;       ///< Name of the share; null: all features are rotated.
  double share = 1;                        ///< Share of the features of a head that are rotated.
  /// Phi-3: the types "default" and "longrope" only, and "original_max_position_embeddings" outside
  /// of "rope_parameters".
  bool phi3 = false;
  /// Ignores "mrope_section" and "mrope_interleaved", which say how the positions of images are rotated:
  /// those of text are all equal.
  bool multimodal = false;
};

/// Returns the frequencies of RoPE for heads with d features. transformers 5 has all fields in
/// "rope_parameters", transformers 4 some of them outside. Fields that contradict each other are
/// refused.
RotaryOptions rotary_options(JsonReader& config, int64_t d, const RopeFields& fields);

/// True if the base of RoPE is null: then OLMo Hybrid has no RoPE.
bool has_null_theta(JsonReader& config);

/// Returns the factor of the scores with which DeepSeek's models compensate for YaRN, from the field
/// "mscale_all_dim" of the parameters of RoPE: (0.1 mscale_all_dim ln(factor) + 1)²; 1 without it.
double rope_score_factor(JsonReader& config);

/// The same for the layers of a type, "full_attention" or "sliding_attention", of a model that has
/// parameters of RoPE for each. transformers 4 has "rope_scaling" for full attention only.
RotaryOptions rotary_options_of(const char* layer_type, JsonReader& config, int64_t d,
                                const RopeFields& fields);

}  // namespace stretto::nn::pretrained
