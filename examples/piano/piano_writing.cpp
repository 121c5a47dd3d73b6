#include "examples/piano/piano_writing.h"

#include <limits>

#include "examples/common/error.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"

namespace stretto::examples {

std::vector<int64_t> sample_music(nn::LanguageModel& model, const std::vector<int64_t>& prompt,
                                  const MusicSampling& sampling, const PianoWritingOptions& o) {
  const nn::EvalMode guard(model);
  const Device device = model.device();
  std::vector<int64_t> piece = prompt;
  nn::LanguageModel::Cache cache = model.make_cache(o.limit);
  const auto logits = [&](const Tensor& next) {
    std::vector<float> scores = model(next.to(device), &cache)[0][-1].to_vector<float>();
    for (const int64_t token : sampling.forbidden())
      scores[size_t(token)] = -std::numeric_limits<float>::infinity();
    return tensor(scores, {1, 1, int64_t(scores.size())});
  };
  nn::generate(logits, prompt,
               {.max_tokens = sampling.tokens,
                .end_tokens = {sampling.end},
                .seed = o.seed,
                .sampling = o.sampling},
               [&](int64_t token) {
                 check_interrupt();
                 piece.push_back(token);
                 sampling.see(token);
                 return sampling.more();
               });
  return piece;
}

std::vector<int64_t> write_piano(nn::LanguageModel& model, const music::Tokenizer& tokens,
                                 const std::vector<int64_t>& prompt, const PianoWritingOptions& o) {
  const auto grammar = tokens.grammar();
  int64_t bars = 0;
  const auto see = [&](int64_t token) {
    grammar->see(token);
    bars += token == tokens.bar;
  };
  const std::vector<int64_t> given = prompt.empty() ? std::vector<int64_t>{tokens.first} : prompt;
  for (const int64_t token : given) see(token);
  const int64_t ids = model.options.vocabulary;
  return sample_music(model, given,
                      {.tokens = o.tokens,
                       .end = tokens.end,
                       .forbidden =
                           [&] {
                             std::vector<int64_t> forbidden;
                             if (o.grammar) forbidden = grammar->forbidden();
                             forbidden.push_back(tokens.pad);
                             for (int64_t id = tokens.size(); id < ids; ++id)
                               forbidden.push_back(id);
                             return forbidden;
                           },
                       .see = see,
                       .more = [&] { return tokens.bar < 0 || o.bars == 0 || bars <= o.bars; }},
                      o);
}

}  // namespace stretto::examples
