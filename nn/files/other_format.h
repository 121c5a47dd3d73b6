// Recognizes the formats of files, failed downloads too.
#pragma once

#include <string>

namespace stretto {
class InputFile;
}

namespace stretto::nn::files {

/// A format, by the first bytes of a file.
enum class FileFormat { gguf, zip, pickle, other };
FileFormat format_of(const InputFile& file);

/// Returns "; it looks like …", by the first bytes of a file that is not a safetensors file; "" if
/// they are not recognized.
std::string other_format(const InputFile& file);

/// True if a file begins like JSON and thus cannot be a safetensors file. An index of shards may
/// have any name.
bool looks_like_index(const std::string& path);

}  // namespace stretto::nn::files
