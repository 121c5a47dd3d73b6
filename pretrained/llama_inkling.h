// Inkling by the fields of its config.json; for pretrained/llama_models.cpp.
#pragma once

#include "language_models.h"

namespace stretto::nn::pretrained {

/// Reads the configuration of "inkling_text".
LanguageModelConfig inkling_config(JsonReader& config);
/// Reads the configuration of "inkling2_text".
LanguageModelConfig inkling2_config(JsonReader& config);

}  // namespace stretto::nn::pretrained
