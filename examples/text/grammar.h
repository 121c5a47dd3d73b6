// A generated language, for training without a text.
#pragma once

#include <cstdint>
#include <string>

namespace stretto::examples {

/// Returns about `bytes` bytes of text, the same for a seed on every machine: nested,
/// indented blocks, each closed by the name that opened it; three kinds of brackets; verbs
/// that agree with their subject in number; and new names that are used again within their
/// block. The next token therefore often depends on a distant token, and long contexts reduce
/// the loss.
std::string generate_text(uint64_t seed, int64_t bytes);

}  // namespace stretto::examples
