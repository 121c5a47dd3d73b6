// Generation of piano music.
#pragma once

#include <functional>
#include <vector>

#include "nn/models/language_model.h"
#include "nn/music/tokenizer.h"

namespace stretto::examples {

struct PianoWritingOptions {
  int64_t tokens = 1024;     ///< maximum number of new tokens
  int64_t bars = 32;         ///< maximum number of bars, if the tokens have bars; 0: unlimited
  double temperature = 1.2;  ///< as in Liutkus et al. (2021), like top_p
  double top_p = 0.9;
  bool grammar = true;  ///< never sample tokens that the grammar of the tokenizer forbids
  uint64_t seed = 1;
  int64_t limit = 0;  ///< maximum number of positions in the cache; 0: unlimited
};

/// Continues `prompt`, or Tokenizer::first if it is empty, and returns prompt and continuation.
/// Padding is never sampled. A kernel with a recurrent state takes constant time and memory per
/// token. Throws Interrupted when the user stops the program.
std::vector<int> write_piano(nn::LanguageModel& model, const music::Tokenizer& tokens,
                             const std::vector<int>& prompt, const PianoWritingOptions& options);

/// What sample_music() asks its caller.
struct MusicSampling {
  int64_t tokens;                                    ///< maximum number of new tokens
  int end;                                           ///< ends the music, and is returned
  std::function<std::vector<int64_t>()> forbidden;   ///< tokens that must not be sampled next
  std::function<void(int)> see;                      ///< is called with each new token
  std::function<bool()> more = [] { return true; };  ///< false: stop after the last token
};

/// Samples tokens after `prompt` and returns all tokens; of the options, the seed, temperature,
/// top-p and cache limit are used.
std::vector<int> sample_music(nn::LanguageModel& model, const std::vector<int>& prompt,
                              const MusicSampling& sampling, const PianoWritingOptions& options);

}  // namespace stretto::examples
