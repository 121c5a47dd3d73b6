// Translates regular expressions of tokenizers from Oniguruma's syntax to that of PCRE2.
#pragma once

#include <string>

namespace stretto::nn::tokenizers {

/// Returns a pattern for PCRE2 with the same meaning. Throws Error "[tokenizer] name: …" for syntax
/// whose meaning differs or is not known.
std::string pcre_pattern(const std::string& expression, const std::string& name);

}  // namespace stretto::nn::tokenizers
