// What tells a checkpoint (nn/training/checkpoint.h) from other files, and from those of another
// version.
#pragma once

#include <string>

#include "safetensors.h"

namespace stretto::nn::files {

/// Before the names of the model's tensors.
inline const std::string model_prefix = "model.";

/// The texts that a checkpoint of this version has, its digest among them.
Metadata checkpoint_texts();

/// Whether a file with these texts is a checkpoint. Throws, by name, for one of another format or
/// another version of the library, but for the last number; and for one that has lost its digest,
/// as one damaged bit of its key would do.
bool is_checkpoint(const std::string& path, const Metadata& metadata);

}  // namespace stretto::nn::files
