#include "examples/groove/groove_training.h"

#include <limits>
#include <stdexcept>

#include "autograd/tape.h"
#include "examples/common/interrupt.h"
#include "examples/common/settings.h"
#include "examples/common/training_file.h"
#include "examples/groove/groove_grammar.h"
#include "examples/groove/groove_tokens.h"
#include "nn/generation.h"
#include "ops/create.h"
#include "ops/loss.h"

namespace stretto::examples {
namespace {

// The model's first values are a function of the seed alone.
nn::MusicTransformer::Options seeded(const GrooveSettings& settings) {
  manual_seed(settings.seed);
  return groove_model(settings);
}

Device device_of(const nn::MusicTransformer& model) { return model.embedding.weight.device(); }

}  // namespace

double groove_loss(nn::MusicTransformer& model, const std::vector<GrooveSequence>& sequences,
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
    const Batch b = groove_batch({begin, end}, published_eos);
    const Device device = device_of(model);
    const Tensor losses = cross_entropy(model(b.inputs.to(device)), b.targets.to(device),
                                        {.ignore_index = not_scored, .reduction = Reduction::none});
    for (const double loss : losses.to_vector<double>()) total += loss;
    for (const int64_t target : b.targets.to_vector<int64_t>()) count += target != not_scored;
  }
  model.train(was_training);
  return total / count;
}

GrooveTraining::GrooveTraining(const GrooveSettings& s, std::vector<GrooveSource> songs,
                               Device device)
    : model(seeded(s)),
      settings(s),
      optimizer_(model.parameters(), {.lr = s.learning_rate, .weight_decay = s.weight_decay}),
      songs_(std::move(songs)),
      fingerprint_(fingerprint(songs_)),
      device_(device) {
  model.to(device);
}

StepResult GrooveTraining::train_step(double progress) {
  const Batch batch =
      groove_batch(training_grooves(songs_, settings, step_), settings.published_eos);
  const RunSchedule schedule{settings.learning_rate, settings.warmup, settings.steps};
  optimizer_.set_learning_rate(schedule.at(step_ + 1, progress));
  const StepResult result = update(optimizer_, model, settings.clip, step_ + 1, [&] {
    return cross_entropy(model(batch.inputs.to(device_)), batch.targets.to(device_),
                         {.ignore_index = not_scored});
  });
  ++step_;
  return result;
}

void GrooveTraining::save(const std::string& path, double seconds) const {
  save_run(path, model, optimizer_,
           {step_, settings_to_notes(settings), fingerprint_, settings.steps == 0, seconds});
}

double GrooveTraining::load(const std::string& path) {
  RunRecord record{.data = fingerprint_, .by_clock = settings.steps == 0};
  load_run(path, model, optimizer_, record, "songs than those of --data (or of --seed without it)");
  step_ = record.step;
  return record.seconds;
}

Groove continue_groove(nn::MusicTransformer& model, const Groove& prompt,
                       const GrooveSampling& options) {
  model.eval();
  const Device device = device_of(model);
  std::vector<int64_t> tokens = to_tokens(prompt);
  std::vector<int64_t> seen{groove_start};
  seen.insert(seen.end(), tokens.begin(), tokens.end());
  nn::MusicTransformer::Cache cache;
  cache.layers.resize(size_t(model.options.n_layers));
  for (auto& layer : cache.layers) layer.limit = options.context;
  GrooveGrammar grammar;
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
