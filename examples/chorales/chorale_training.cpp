#include "examples/chorales/chorale_training.h"

#include "core/digest.h"
#include "examples/common/interrupt.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"
#include "ops/loss.h"

namespace stretto::examples {

void ChoraleSettings::check() const {
  check_chorales(4);
  require(length % 4 == 0,
          "--length " + as_text(length) + ": must be a multiple of 4, the voices of a sixteenth");
  check_position(positions());
}

nn::PositionSettings ChoraleSettings::positions() const {
  nn::PositionSettings p = position_settings(length);
  p.longest = 2 * length;
  return p;
}

double ChoraleSettings::least_memory() const {
  return least_memory_of<nn::LanguageModel>(model(), double(batch * length), chorale_vocabulary);
}

nn::LanguageModel::Options ChoraleSettings::model() const {
  nn::LanguageModel::Options o{
      .vocabulary = chorale_vocabulary, .n_layers = layers, .layer = layer()};
  nn::add_position(position, positions(), o.layer, o.input);
  return o;
}

double validation_loss(nn::LanguageModel& model, const std::vector<Chorale>& pieces, int64_t length,
                       int64_t stride, int64_t batch) {
  return nn::mean_loss(model, [&](const auto& score) {
    scoring_batches(pieces, length, stride, batch, [&](const nn::Batch& b) {
      check_interrupt();
      score(b);
    });
  });
}

std::string fingerprint(const std::vector<Chorale>& pieces) {
  Digest print;
  for (const Chorale& piece : pieces) {
    for (int64_t t : to_tokens(piece)) print.add(t);
    print.add(end_token);
  }
  return print.text();
}

ChoraleTraining::ChoraleTraining(const ChoraleSettings& s, std::vector<Chorale> pieces,
                                 Device device)
    : ModelTraining(s, s.model(), adamw_of(s), {fingerprint(pieces), other_chorales}, device,
                    cosine_of(s), s.batch * s.length),
      pieces_(std::move(pieces)) {}

Tensor ChoraleTraining::loss(int64_t step) {
  const nn::Batch batch = trainer.fed_batch(step, [this](int64_t i) {
    return training_batch(pieces_, {settings.batch, settings.length, int(settings.transpose)},
                          settings.seed, i);
  });
  return cross_entropy(model(batch.inputs), batch.targets, {.ignore_index = nn::not_scored});
}

Chorale continue_chorale(nn::LanguageModel& model, const Chorale& opening, int64_t steps,
                         int64_t limit, double temperature, double top_p, uint64_t seed) {
  const nn::EvalMode guard(model);
  std::vector<int64_t> tokens = to_tokens(opening);
  std::vector<int64_t> prompt = {start_token};
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  nn::LanguageModel::Cache cache = model.make_cache(limit);
  const std::vector<int64_t> drawn = nn::generate(
      [&](const Tensor& next) { return model(next.to(model.device()), &cache); }, prompt,
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
