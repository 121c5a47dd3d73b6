// Detects checkpoints (nn/training/checkpoint.h) and their version among safetensors files.
#pragma once

#include <string>

#include "safetensors.h"

namespace stretto::nn::files {

/// Prefix of the names of the model's tensors.
inline constexpr std::string_view model_prefix = "model.";

/// Returns the metadata that every checkpoint of this version has, including the digest key.
Metadata checkpoint_texts();

/// True if a file with this metadata is a checkpoint. Throws Error for a checkpoint of another
/// format or of another version of the library (the patch number may differ), and for one without
/// digest, e.g. because a bit of its key is damaged.
bool is_checkpoint(const std::string& path, const Metadata& metadata);

}  // namespace stretto::nn::files
