#include "examples/chorales/chorale_training.h"

#include <cmath>

#include "autograd/tape.h"
#include "examples/chorales/chorale_options.h"
#include "examples/common/interrupt.h"
#include "examples/training/training_file.h"
#include "nn/models/generation.h"
#include "ops/loss.h"

namespace stretto::examples {

void ChoraleSettings::check() const {
  require(attention == "relative" || attention == "absolute",
          "--attention " + attention + ": accepted are relative and absolute");
  check_chorales(4);
  require(length % 4 == 0,
          "--length " + as_text(length) + ": must be a multiple of 4, the voices of a sixteenth");
}

double ChoraleSettings::least_memory() const {
  const double d = double(d_model), hidden = double(d_hidden), vocabulary = chorale_vocabulary;
  const double table = attention == "relative" ? double(length) * d : 0;
  const double parameters =
      double(layers) * (4 * d * d + 2 * d * hidden + table) + 2 * vocabulary * d;
  const double activations =
      double(batch) * double(length) * (double(layers) * (6 * d + hidden) + vocabulary);
  return sizeof(float) * (4 * parameters + activations);
}

nn::MusicTransformer::Options ChoraleSettings::model() const {
  nn::MusicTransformer::Options o{.vocabulary = chorale_vocabulary,
                                  .d_model = d_model,
                                  .n_layers = layers,
                                  .n_heads = heads,
                                  .d_hidden = d_hidden,
                                  .relative = attention == "relative",
                                  .relative_length = length,
                                  .dropout = dropout,
                                  .attention_dropout = attention_dropout};
  if (!o.relative) o.sinusoid = nn::Sinusoid::interleaved;
  return o;
}

double validation_loss(nn::MusicTransformer& model, const std::vector<Chorale>& pieces,
                       int64_t length, int64_t stride, int64_t batch) {
  NoGrad guard;
  const bool was_training = model.training();
  model.eval();
  const Device device = model.embedding.weight.device();
  double total = 0, count = 0;
  scoring_batches(pieces, length, stride, batch, [&](const nn::Batch& b) {
    check_interrupt();
    const Tensor losses =
        cross_entropy(model(b.inputs.to(device)), b.targets.to(device),
                      {.ignore_index = nn::not_scored, .reduction = Reduction::none});
    for (double loss : losses.to_vector<double>()) total += loss;
    for (int64_t target : b.targets.to_vector<int64_t>()) count += target != nn::not_scored;
  });
  model.train(was_training);
  return total / count;
}

std::string fingerprint(const std::vector<Chorale>& pieces) {
  Fingerprint print;
  for (const Chorale& piece : pieces) {
    for (int64_t t : to_tokens(piece)) print.add(t);
    print.add(end_token);
  }
  return print.text();
}

ChoraleTraining::ChoraleTraining(const ChoraleSettings& s, std::vector<Chorale> pieces,
                                 Device device)
    : ModelTraining(s, s.model(), adamw_of(s), {fingerprint(pieces), other_chorales}, device),
      pieces_(std::move(pieces)) {}

StepResult ChoraleTraining::train_step(double progress) {
  const nn::Batch batch = training_batch(
      pieces_, {settings.batch, settings.length, int(settings.transpose)}, settings.seed, step());
  return update_on_schedule(progress, [&] {
    return cross_entropy(model(batch.inputs.to(device())), batch.targets.to(device()),
                         {.ignore_index = nn::not_scored});
  });
}

Chorale continue_chorale(nn::MusicTransformer& model, const Chorale& opening, int64_t steps,
                         int64_t context, double temperature, double top_p, uint64_t seed) {
  model.eval();
  std::vector<int64_t> tokens = to_tokens(opening);
  std::vector<int64_t> prompt = {start_token};
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  nn::MusicTransformer::Cache cache;
  cache.layers.resize(size_t(model.options.n_layers));
  for (auto& layer : cache.layers) layer.limit = context;
  const std::vector<int64_t> drawn = nn::generate(
      [&](const Tensor& next) { return model(next.to(model.embedding.weight.device()), &cache); },
      prompt,
      {.max_tokens = 4 * steps,
       .end_token = end_token,
       .seed = seed,
       .sampling = {.temperature = temperature, .top_p = top_p, .forbidden = {start_token}}},
      [](int64_t) {
        check_interrupt();
        return true;
      });
  tokens.insert(tokens.end(), drawn.begin(), drawn.end());
  return to_chorale(tokens);
}

}  // namespace stretto::examples
