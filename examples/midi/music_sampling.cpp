#include "examples/midi/music_sampling.h"

#include <limits>
#include <span>

#include "examples/common/error.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"

namespace stretto::examples {

std::vector<int64_t> sample_music(nn::LanguageModel& model, const std::vector<int64_t>& prompt,
                                  MusicSampling o) {
  const nn::EvalMode guard(model);
  const Device device = model.device();
  nn::LanguageModel::Cache cache = model.make_cache(o.limit);
  o.sampling.constrain = [&](std::span<double> logits, const std::vector<int64_t>&) {
    for (const int64_t token : o.forbidden())
      logits[size_t(token)] = -std::numeric_limits<double>::infinity();
  };
  std::vector<int64_t> piece = prompt;
  nn::generate(
      [&](const Tensor& next) { return model(next.to(device), &cache); }, prompt,
      {.max_tokens = o.tokens, .end_tokens = {o.end}, .seed = o.seed, .sampling = o.sampling},
      [&](int64_t token) {
        check_interrupt();
        piece.push_back(token);
        o.see(token);
        return o.more();
      });
  return piece;
}

}  // namespace stretto::examples
