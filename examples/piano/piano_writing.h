// Generation of piano music.
#pragma once

#include <vector>

#include "examples/piano/piano_tokens.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

struct PianoWritingOptions {
  int64_t tokens = 1024;     ///< maximum number of new tokens
  int64_t bars = 32;         ///< remi: maximum number of bars; 0: unlimited
  double temperature = 1.2;  ///< as in Liutkus et al. (2021), like top_p
  double top_p = 0.9;
  bool grammar = true;  ///< never sample tokens that PianoTokens::grammar forbids
  uint64_t seed = 1;
  int64_t limit = 0;  ///< maximum number of positions in the cache; 0: unlimited
};

/// Continues `prompt`, or PianoTokens::first if it is empty, and returns prompt and continuation.
/// Padding is never sampled. A kernel with a recurrent state takes constant time and memory per
/// token. Throws Interrupted when the user stops the program.
std::vector<int> write_piano(nn::LanguageModel& model, const PianoTokens& tokens,
                             const std::vector<int>& prompt, const PianoWritingOptions& options);

}  // namespace stretto::examples
