#include "examples/groove/groove_training.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "autograd/tape.h"
#include "examples/common/interrupt.h"
#include "examples/groove/groove_tokens.h"
#include "nn/models/generation.h"
#include "ops/create.h"
#include "ops/loss.h"

namespace stretto::examples {
namespace {

Device device_of(const nn::LanguageModel& model) { return model.embedding.weight.device(); }

}  // namespace

double groove_loss(nn::LanguageModel& model, const std::vector<GrooveSequence>& sequences,
                   int64_t batch, bool published_eos) {
  if (sequences.empty()) throw std::invalid_argument("groove_loss: no sequences");
  NoGrad guard;
  const bool was_training = model.training();
  model.eval();
  double total = 0, count = 0;
  for (size_t i = 0; i < sequences.size(); i += size_t(batch)) {
    check_interrupt();
    const auto begin = sequences.begin() + int64_t(i);
    const auto end = sequences.begin() + int64_t(std::min(i + size_t(batch), sequences.size()));
    const nn::Batch b = groove_batch({begin, end}, published_eos);
    const Device device = device_of(model);
    const Tensor losses =
        cross_entropy(model(b.inputs.to(device)), b.targets.to(device),
                      {.ignore_index = nn::not_scored, .reduction = Reduction::none});
    for (const double loss : losses.to_vector<double>()) total += loss;
    for (const int64_t target : b.targets.to_vector<int64_t>()) count += target != nn::not_scored;
  }
  model.train(was_training);
  return total / count;
}

GrooveTraining::GrooveTraining(const GrooveSettings& s, std::vector<GrooveSource> songs,
                               Device device)
    : ModelTraining(s, s.model(), {.lr = s.learning_rate, .weight_decay = s.weight_decay},
                    {fingerprint(songs), "songs than those of --data (or of --seed without it)"},
                    device),
      songs_(std::move(songs)) {}

StepResult GrooveTraining::train_step(double progress) {
  const nn::Batch batch =
      groove_batch(training_grooves(songs_, settings, step()), settings.published_eos);
  return update_on_schedule(progress, [&] {
    return cross_entropy(model(batch.inputs.to(device())), batch.targets.to(device()),
                         {.ignore_index = nn::not_scored});
  });
}

Groove continue_groove(nn::LanguageModel& model, const Groove& prompt,
                       const GrooveSampling& options) {
  model.eval();
  const Device device = device_of(model);
  std::vector<int64_t> tokens = to_tokens(prompt);
  std::vector<int64_t> seen{groove_start};
  seen.insert(seen.end(), tokens.begin(), tokens.end());
  nn::LanguageModel::Cache cache;
  cache.layers.resize(size_t(model.options.n_layers));
  for (auto& layer : cache.layers) layer.limit = options.context;
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
