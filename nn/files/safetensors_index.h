// Reads the index of a model in several files ("shards"); for nn/files/safetensors.cpp.
//
//     {"metadata": {…}, "weight_map": {name: "model-00001-of-00002.safetensors", …}}
#pragma once

#include <map>
#include <string>

namespace stretto::nn::files {

/// Returns the shard of each tensor, by the tensor's name. A shard is a file name without a
/// directory, so that only files in the directory of the index are ever opened. Throws Error, one
/// line with the path, if anything is invalid.
std::map<std::string, std::string> read_index(const std::string& path);

}  // namespace stretto::nn::files
