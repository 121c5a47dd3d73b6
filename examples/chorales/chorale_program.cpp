#include "examples/chorales/chorale_program.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "core/digest.h"
#include "examples/chorales/baselines.h"
#include "examples/chorales/chorale_song.h"
#include "examples/common/error.h"
#include "nn/models/generation.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"

namespace stretto::examples {

void ChoraleSettings::check() const {
  check_each(*this);
  check_model();
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

Chorale continue_chorale(nn::LanguageModel& model, const Chorale& opening, int64_t steps,
                         int64_t limit, const nn::SamplingOptions& sampling, uint64_t seed) {
  const nn::EvalMode guard(model);
  std::vector<int64_t> tokens = to_tokens(opening);
  std::vector<int64_t> prompt = {start_token};
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  nn::LanguageModel::Cache cache = model.make_cache(limit);
  nn::GenerationOptions options{
      .max_tokens = 4 * steps, .end_tokens = {end_token}, .seed = seed, .sampling = sampling};
  options.sampling.forbidden = {start_token};
  const std::vector<int64_t> drawn = nn::generate(
      [&](const Tensor& next) { return model(next.to(model.device()), &cache); }, prompt, options,
      [](int64_t) {
        check_interrupt();
        return true;
      });
  tokens.insert(tokens.end(), drawn.begin(), drawn.end());
  return to_chorale(tokens);
}

void ChoraleProgram::declare(OptionList& options) {
  options.input("data", data_, "Four-voice chorales as JSON; without it, chorales are generated");
  run_.declare(options);
  options.settings(settings);
  describe_position(options, settings, {settings.positions()});
  options.describe("batch", "Batch size: crops per step");
  options("final_stride", final_stride_,
          "Stride of the final evaluation: every token has a context of at least length - stride",
          between(1, INT64_MAX));
  options("generate", generate_, "Number of sixteenths to generate (0: none)", between(0, 8000));
  options("prime", prime_, "Prompt length: sixteenths of a validation piece to continue",
          between(0, 8000));
  declare_sampling(options, sampling_);
}

void ChoraleProgram::resolve() {
  take_settings();
  fit_generation();
}

// With a position table of limited size, defaults that the user did not set are reduced to fit:
// with learned positions the length of the generated music, with bert the length of the prompt,
// which is processed in one forward pass.
void ChoraleProgram::fit_generation() {
  const nn::PositionSettings p = settings.positions();
  const int64_t room = settings.room(p);
  if (!run_.given("--prime")) prime_ = std::min(prime_, (room - 1) / 4);
  if (settings.has_position("learned")) {
    if (!run_.given("--generate")) generate_ = std::min(generate_, room / 4);
    settings.require_room(p, 4 * generate_, "--generate " + as_text(generate_));
  }
  if (generate_ > prime_) settings.require_room(p, 4 * prime_ + 1, "--prime " + as_text(prime_));
}

void ChoraleProgram::prepare() {
  use_device(settings.steps, settings.least_memory());
  pieces_ = data_.empty() ? generate_chorales(settings.seed) : load_chorales(data_);
  start(pieces_.train);
  files_.emplace_back("attention.svg");
  if (data_.empty()) files_.emplace_back("chorales.json");
  if (generate_ > 0) list_music("generated");
  if (generate_ > 0 && prime_ > 0) list_music("primed");
}

void ChoraleProgram::start(std::vector<Chorale> pieces) {
  pieces_.train = std::move(pieces);
  create(vaswani_adam(settings.weight_decay), {fingerprint(pieces_.train), other_chorales},
         settings.batch * settings.length);
}

void ChoraleProgram::begin() {
  if (data_.empty()) save_chorales(path("chorales.json"), pieces_);
  unigram_ = unigram_loss(pieces_.train, pieces_.valid);
  bigram_ = voice_bigram_loss(pieces_.train, pieces_.valid);
  curve_ = {.title = "Loss, position " + settings.position,
            .references = {{"bigram per voice", bigram_}}};
  std::cout << (data_.empty() ? "Generated" : "Read") << " " << pieces_.train.size()
            << " chorales for training and " << pieces_.valid.size() << " for validation. Position "
            << settings.position << ", " << model_and_machine() << std::endl;
}

nn::Batch ChoraleProgram::training(int64_t i) {
  return training_batch(pieces_.train, {settings.batch, settings.length, int(settings.transpose)},
                        settings.seed, i);
}

double ChoraleProgram::validate(int64_t stride) {
  return with_context(str("validation after step ", step()), [&] {
    return validation_loss(*model, pieces_.valid, settings.length, stride, 2 * settings.batch);
  });
}

void ChoraleProgram::report() {
  const double trained = trainer().seconds();
  std::cout << "Saved " << checkpoint_path() << "; now scoring the validation pieces" << std::endl;
  const double loss = validate(std::min(final_stride_, settings.length));
  show_losses("Validation loss, nats per token",
              str(" (", step(), " steps, ", nn::duration_text(trained), ")"),
              {{"unigram", unigram_}, {"bigram per voice", bigram_}, {"model", loss}},
              settings.position + " ");
  draw_curve();
  draw_attention();
  if (generate_ > 0) write_music();
}

void ChoraleProgram::draw_attention() {
  const int64_t length = std::min<int64_t>(128, settings.length);
  std::optional<Tensor> opening;
  scoring_batches({pieces_.valid.front()}, length, length, 1, [&](const nn::Batch& batch) {
    if (!opening) opening = batch.inputs;
  });
  const nn::EvalMode guard(*model);
  const std::vector<Tensor> weights = model->attention_weights(opening->to(model->device()));
  std::vector<HeatMap> maps;
  for (const int64_t layer : {int64_t(0), int64_t(weights.size()) - 1}) {
    for (int64_t head = 0; head < std::min<int64_t>(4, settings.heads); ++head)
      maps.push_back({"layer " + std::to_string(layer + 1) + ", head " + std::to_string(head + 1),
                      int(length), int(length),
                      weights[size_t(layer)][0][head].to_vector<float>()});
    if (weights.size() == 1) break;
  }
  show_maps("attention",
            {.title = "Attention weights of the first and the last layer: queries downwards, keys "
                      "to the right",
             .rows = "query",
             .columns = "key",
             .maps = std::move(maps)});
}

void ChoraleProgram::write_music() {
  const int64_t limit = settings.cache_limit(settings.positions(), settings.length);
  const auto write = [&](const std::string& name, const std::string& title, const Chorale& opening,
                         int64_t steps) {
    const Chorale piece = continue_chorale(*model, opening, steps, limit, sampling_, settings.seed);
    if (piece.steps.empty()) {
      std::cout << name << ": the model ended the piece at once; nothing written\n";
      return;
    }
    show_music(name, title, to_song(piece), piano_roll(piece, title));
  };
  write("generated", "Generated without a prompt", {}, generate_);
  if (prime_ == 0) return;
  Chorale opening = pieces_.valid.front();
  const size_t primed = std::min(opening.steps.size(), size_t(prime_));
  opening.steps.resize(primed);
  write("primed", "The first " + std::to_string(primed) + " sixteenths are given", opening,
        std::max<int64_t>(0, generate_ - int64_t(primed)));
}

}  // namespace stretto::examples
