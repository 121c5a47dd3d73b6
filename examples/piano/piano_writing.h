// Generation of piano music.
#pragma once

#include <vector>

#include "music/tokenizer.h"
#include "nn/models/language_model.h"
#include "nn/models/sampling.h"

namespace stretto::examples {

/// Options of generation. The defaults of sampling are those of Liutkus et al. (2021).
struct PianoWritingOptions {
  int64_t tokens = 1024;  ///< maximum number of new tokens
  /// Generation stops when a bar after this number of bars begins, those of the prompt included, if
  /// the tokens have bars; 0: unlimited.
  int64_t bars = 32;
  nn::SamplingOptions sampling = {.temperature = 1.2, .top_p = 0.9};
  bool grammar = true;  ///< never sample tokens that the grammar of the tokenizer forbids
  uint64_t seed = 1;
  int64_t limit = 0;  ///< maximum number of positions in the cache; 0: unlimited
};

/// Continues `prompt`, or Tokenizer::first if it is empty, and returns prompt and continuation.
/// Padding is never sampled. With a recurrent state, a token takes constant time and memory.
/// Throws Interrupted when the user stops the program.
std::vector<int64_t> write_piano(nn::LanguageModel& model, const music::Tokenizer& tokens,
                                 const std::vector<int64_t>& prompt,
                                 const PianoWritingOptions& options);

}  // namespace stretto::examples
