// The state of a decoder between the tokens of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stretto::nn::tokenizers {

/// The state of a decoder after the tokens so far.
struct DecoderState {
  std::string token;  ///< The beginning of an incomplete token.
  std::string held;   ///< Text that later tokens can change.
  int64_t count = 0;  ///< A counter; its meaning depends on the decoder.
  size_t bytes = 0;   ///< The number of bytes that the decoder has received.
};

}  // namespace stretto::nn::tokenizers
