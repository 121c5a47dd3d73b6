// LLaMA and the models that descend from it, by the fields of their config.json; for
// pretrained/language_models.cpp.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "language_models.h"

namespace stretto::nn::pretrained {

/// Reads the configuration of one model type.
using MakeConfig = std::function<LanguageModelConfig(JsonReader&)>;

/// Returns the model types and their readers.
const std::vector<std::pair<std::string, MakeConfig>>& llama_models();

}  // namespace stretto::nn::pretrained
