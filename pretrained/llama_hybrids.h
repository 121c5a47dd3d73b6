// Hybrids, whose layers have softmax attention or linear attention with the delta rule, by the fields
// of their config.json; for pretrained/language_models.cpp.
#pragma once

#include "llama_models.h"

namespace stretto::nn::pretrained {

/// Returns the model types and their readers.
const std::vector<std::pair<std::string, MakeConfig>>& llama_hybrids();

}  // namespace stretto::nn::pretrained
