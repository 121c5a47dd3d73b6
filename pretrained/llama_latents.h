// DeepSeek-V2 and V3 by the fields of their config.json; for pretrained/llama_models.cpp.
#pragma once

#include "language_models.h"

namespace stretto::nn::pretrained {

/// Reads the configuration of "deepseek_v2".
LanguageModelConfig deepseek_v2_config(JsonReader& config);
/// Reads the configuration of "deepseek_v3".
LanguageModelConfig deepseek_v3_config(JsonReader& config);

}  // namespace stretto::nn::pretrained
