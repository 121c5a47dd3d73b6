#include "examples/piano/piano_writing.h"

#include <limits>

#include "examples/common/interrupt.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"

namespace stretto::examples {

std::vector<int> write_piano(nn::LanguageModel& model, const PianoTokens& tokens,
                             const std::vector<int>& prompt, const PianoWritingOptions& o) {
  const nn::EvalMode guard(model);
  const Device device = model.device();
  std::vector<int> piece = prompt.empty() ? std::vector<int>{tokens.first} : prompt;
  const auto grammar = tokens.grammar();
  int64_t bars = 0;
  const auto see = [&](int token) {
    grammar->see(token);
    bars += token == tokens.first;  // remi: Bar
  };
  for (const int token : piece) see(token);

  nn::LanguageModel::Cache cache = model.make_cache(o.limit);
  const auto logits = [&](const Tensor& next) {
    std::vector<float> scores = model(next.to(device), &cache)[0][-1].to_vector<float>();
    if (o.grammar)
      for (const int64_t token : grammar->forbidden())
        scores[size_t(token)] = -std::numeric_limits<float>::infinity();
    return tensor(scores, {1, 1, tokens.vocabulary});
  };
  nn::generate(
      logits, std::vector<int64_t>(piece.begin(), piece.end()),
      {.max_tokens = o.tokens,
       .end_tokens = {tokens.end},
       .seed = o.seed,
       .sampling = {.temperature = o.temperature, .top_p = o.top_p, .forbidden = {tokens.pad}}},
      [&](int64_t token) {
        check_interrupt();
        piece.push_back(int(token));
        see(int(token));
        return tokens.name != "remi" || o.bars == 0 || bars <= o.bars;
      });
  return piece;
}

}  // namespace stretto::examples
