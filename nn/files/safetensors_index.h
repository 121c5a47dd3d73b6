// The index of weights in several files, "shards", as it is read: for nn/files/safetensors.cpp.
//
//     {"metadata": {…}, "weight_map": {name: "model-00001-of-00002.safetensors", …}}
#pragma once

#include <map>
#include <string>

namespace stretto::nn::files {

/// By name, the shard that holds the tensor: a plain file name, so that nothing but what lies
/// beside the index is ever opened. Error, in one line with the path, for whatever is wrong.
std::map<std::string, std::string> read_index(const std::string& path);

}  // namespace stretto::nn::files
