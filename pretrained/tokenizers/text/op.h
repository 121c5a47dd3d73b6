// The op in the error messages of tokenizers.
#pragma once

namespace stretto::nn::tokenizers {

inline constexpr const char* op = "tokenizer";

}  // namespace stretto::nn::tokenizers
