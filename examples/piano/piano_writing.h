// Piano music that a model writes.
#pragma once

#include <vector>

#include "examples/piano/piano_tokens.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

struct PianoWritingOptions {
  int64_t tokens = 1024;     // at most so many new ones
  int64_t bars = 32;         // remi: it ends with so many; 0: any number
  double temperature = 1.2;  // Liutkus et al. (2021), as the next
  double top_p = 0.9;
  bool grammar = true;  // what PianoTokens::grammar forbids is not drawn
  uint64_t seed = 1;
  int64_t limit = 0;  // of the cache
};

/// Continues `prompt`; with an empty one PianoTokens::first begins. Padding is never drawn. The
/// result begins with the prompt. A kernel that keeps a state takes constant time and memory a
/// token. Throws Interrupted when the user stops the program.
std::vector<int> write_piano(nn::LanguageModel& model, const PianoTokens& tokens,
                             const std::vector<int>& prompt, const PianoWritingOptions& options);

}  // namespace stretto::examples
