// Generation of piano music.
#pragma once

#include <functional>
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

/// Limits and callbacks of sample_music().
struct MusicSampling {
  int64_t tokens;                                    ///< maximum number of new tokens
  int64_t end;                                       ///< ends the music, and is returned
  std::function<std::vector<int64_t>()> forbidden;   ///< tokens that must not be sampled next
  std::function<void(int64_t)> see;                  ///< is called with each new token
  std::function<bool()> more = [] { return true; };  ///< returns false to stop after the last token
};

/// Samples tokens after `prompt` and returns all tokens; of the options, the seed, sampling and
/// cache limit are used.
std::vector<int64_t> sample_music(nn::LanguageModel& model, const std::vector<int64_t>& prompt,
                                  const MusicSampling& sampling,
                                  const PianoWritingOptions& options);

}  // namespace stretto::examples
