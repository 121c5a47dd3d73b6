// Sampling of tokens of music under a grammar.
#pragma once

#include <functional>
#include <vector>

#include "nn/models/language_model.h"
#include "nn/models/sampling.h"

namespace stretto::examples {

/// Options and callbacks of sample_music().
struct MusicSampling {
  int64_t tokens;                                    ///< maximum number of new tokens
  int64_t end;                                       ///< ends the music, and is returned
  std::function<std::vector<int64_t>()> forbidden;   ///< tokens that must not be sampled next
  std::function<void(int64_t)> see;                  ///< is called with each new token
  std::function<bool()> more = [] { return true; };  ///< returns false to stop after the last token
  nn::SamplingOptions sampling = {};
  uint64_t seed = 1;
  int64_t limit = 0;  ///< maximum number of positions in the cache; 0: unlimited
};

/// Samples tokens after `prompt` and returns all tokens. Throws Interrupted when the user stops the
/// program.
std::vector<int64_t> sample_music(nn::LanguageModel& model, const std::vector<int64_t>& prompt,
                                  MusicSampling options);

}  // namespace stretto::examples
