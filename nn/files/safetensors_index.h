// Reads the index of a model in several files ("shards"); for safetensors.cpp and
// open_weights.cpp.
//
//     {"metadata": {…}, "weight_map": {name: "model-00001-of-00002.safetensors", …}}
#pragma once

#include <map>
#include <set>
#include <string>

namespace stretto::nn::files {

/// Returns the shard of each tensor, by the tensor's name. A shard is a file name without a
/// directory, so that only files in the directory of the index are ever opened. Throws Error
/// "[op] path: …", one line, if anything is invalid.
std::map<std::string, std::string> read_index(const char* op, const std::string& path);

/// Returns the names of the tensors of each shard, by the path of the shard. Throws Error if a
/// shard is missing, or if there are more than 1000.
std::map<std::string, std::set<std::string>> names_by_shard(
    const char* op, const std::string& path, const std::map<std::string, std::string>& index);

}  // namespace stretto::nn::files
