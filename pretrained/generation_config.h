// The options of generation in generation_config.json; for pretrained/.
#pragma once

#include <string>

#include "../nn/models/generation.h"

namespace stretto::nn::pretrained {

/// Returns the options of generation that a model has by its config.json and
/// generation_config.json. `folder` names the files in errors; an empty text: there is no such
/// file.
GenerationOptions generation_options(const std::string& folder, const std::string& config,
                                     const std::string& generation_config);

/// Returns the text of a generation_config.json with these options: the given one if it has them,
/// which may be empty, or else the given one with changed fields.
std::string generation_config_with(const GenerationOptions& options, const std::string& config,
                                   const std::string& generation_config);

}  // namespace stretto::nn::pretrained
