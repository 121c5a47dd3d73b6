#include "examples/groove/groove_training.h"

#include <algorithm>
#include <limits>

#include "examples/common/interrupt.h"
#include "examples/groove/groove_tokens.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"
#include "ops/create.h"
#include "ops/loss.h"

namespace stretto::examples {

double groove_loss(nn::LanguageModel& model, const std::vector<GrooveSequence>& sequences,
                   int64_t batch, bool published_eos) {
  return nn::mean_loss(model, [&](const auto& score) {
    const auto n = int64_t(sequences.size());
    for (int64_t at = 0; at < n; at += batch) {
      check_interrupt();
      const auto begin = sequences.begin() + at;
      score(groove_batch({begin, begin + std::min(batch, n - at)}, published_eos));
    }
  });
}

GrooveTraining::GrooveTraining(const GrooveSettings& s, std::vector<GrooveSource> songs,
                               Device device)
    : ModelTraining(s, s.model(), {.lr = s.learning_rate, .weight_decay = s.weight_decay},
                    {fingerprint(songs), "songs than those of --data (or of --seed without it)"},
                    device, cosine_of(s), s.batch * (s.length - 1)),
      songs_(std::move(songs)) {}

Tensor GrooveTraining::loss(int64_t step) {
  const nn::Batch batch = trainer.fed_batch(step, [this](int64_t i) {
    return groove_batch(training_grooves(songs_, settings, i), settings.published_eos);
  });
  return cross_entropy(model(batch.inputs), batch.targets, {.ignore_index = nn::not_scored});
}

Groove continue_groove(nn::LanguageModel& model, const Groove& prompt,
                       const GrooveSampling& options) {
  const nn::EvalMode guard(model);
  const Device device = model.device();
  std::vector<int64_t> tokens = to_tokens(prompt);
  std::vector<int64_t> seen{groove_start};
  seen.insert(seen.end(), tokens.begin(), tokens.end());
  nn::LanguageModel::Cache cache = model.make_cache(options.limit);
  GrooveGrammar grammar(options.shifts);
  const auto allowed = [&](const Tensor& next) {
    check_interrupt();
    for (const int64_t token : next.to_vector<int64_t>()) grammar.see(token);
    std::vector<double> scores = model(next.to(device), &cache)[0][-1].to_vector<double>();
    for (const int64_t token : grammar.forbidden())
      scores[size_t(token)] = -std::numeric_limits<double>::infinity();
    return tensor(scores, {1, 1, int64_t(scores.size())});
  };
  const std::vector<int64_t> drawn =
      nn::generate(allowed, seen,
                   {.max_tokens = options.tokens,
                    .end_token = groove_end,
                    .seed = options.seed,
                    .sampling = {.temperature = options.temperature}});
  tokens.insert(tokens.end(), drawn.begin(), drawn.end());
  Groove result = to_groove(tokens);
  result.programs = prompt.programs;
  result.quarters_per_minute = prompt.quarters_per_minute;
  return result;
}

}  // namespace stretto::examples
