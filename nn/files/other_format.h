// What lies where weights are expected: a failed download, another format.
#pragma once

#include <string>

namespace stretto {
class InputFile;
}

namespace stretto::nn::files {

/// "; it looks like …", told by the first bytes of a file that is no safetensors file, or "" where
/// they say nothing.
std::string other_format(const InputFile& file);

/// True if a file begins as JSON does, and therefore as no safetensors file can: an index of shards
/// may have any name.
bool looks_like_index(const std::string& path);

}  // namespace stretto::nn::files
