// Trains a Music Transformer on four-voice chorales, and lets it write some.
//
// In: --data FILE, or chorales that it generates itself. Out, in --out DIR: checkpoint,
// metrics.csv, pictures of the loss, of attention and of the music, and the music as MIDI.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <optional>
#include <utility>

#include "examples/chorales/baselines.h"
#include "examples/chorales/chorale_roll.h"
#include "examples/chorales/chorale_song.h"
#include "examples/chorales/chorale_training.h"
#include "examples/training/model_run.h"
#include "examples/training/run_settings.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"

namespace stretto::examples {
namespace {

struct Options {
  ChoraleSettings settings;
  RunOptions run{.out = "out/chorales"};
  std::string data;
  int64_t final_stride = 16;
  int64_t generate = 128;
  int64_t prime = 32;
  double temperature = 1;
  double top_p = 0.95;
};

void describe(CLI::App& app, Options& o) {
  ChoraleSettings& s = o.settings;
  app.add_option("--data", o.data, "Four-voice chorales as JSON; without it some are generated")
      ->option_text("FILE");
  describe(app, o.run);
  describe_steps_and_seed(app, s.steps, s.seed);
  describe_chorales(app, s, {s.positions()});
  app.add_option("--length", s.length, "Tokens of context (4 per sixteenth)");
  app.add_option("--final-stride", o.final_stride,
                 "At the end every token is scored with at least length - stride of context");
  app.add_option("--generate", o.generate, "Sixteenths of music to write (0: none)");
  app.add_option("--prime", o.prime, "Sixteenths of a validation piece to continue");
  app.add_option("--temperature", o.temperature, "Of the drawing of tokens");
  app.add_option("--top-p", o.top_p, "Draw among the likeliest tokens that reach this share");
}

// Where a table of positions ends, what was not asked for is made to fit: with learned positions
// the music that is written, with bert what is read at once of the music that it continues.
void fit_generation(Options& o) {
  const nn::PositionSettings p = o.settings.positions();
  const int64_t room = o.settings.room(p);
  if (!o.run.given("--prime")) o.prime = std::min(o.prime, (room - 1) / 4);
  if (o.settings.has_position("learned")) {
    if (!o.run.given("--generate")) o.generate = std::min(o.generate, room / 4);
    o.settings.require_room(p, 4 * o.generate, "--generate " + as_text(o.generate));
  }
  if (o.generate > o.prime)
    o.settings.require_room(p, 4 * o.prime + 1, "--prime " + as_text(o.prime));
}

// Of a resumed run, its own settings, which must be those that are given.
void resolve(Options& o) {
  if (!o.run.resume.empty())
    take_saved(o.settings, saved_settings<ChoraleSettings>(o.run.resume, "train_chorales"), o.run);
  o.settings.check();
  require_range("--final-stride", o.final_stride, 1, INT64_MAX);
  require_range("--generate", o.generate, 0, 8000);
  require_range("--prime", o.prime, 0, 8000);
  fit_generation(o);
  require_not_negative("--temperature", o.temperature);
  require_number("--top-p", o.top_p, o.top_p > 0 && o.top_p <= 1, "above 0 and at most 1");
}

struct Losses {
  double unigram, bigram;
};

class Run : public ModelRun<ChoraleTraining> {
 public:
  explicit Run(Options options) : ModelRun(options.run), o_(std::move(options)) {}

 private:
  void prepare() override {
    const Device device = use_device(o_.settings.steps, o_.settings.least_memory(),
                                     "--layers, --d-model, --d-hidden, --length or --batch");
    pieces_ = o_.data.empty() ? generate_chorales(o_.settings.seed) : load_chorales(o_.data);
    make_training(o_.settings, pieces_.train, device);
  }

  void begin() override {
    if (o_.data.empty()) save_chorales(path("chorales.json"), pieces_);
    baselines_ = {unigram_loss(pieces_.train, pieces_.valid),
                  voice_bigram_loss(pieces_.train, pieces_.valid)};
    std::cout << (o_.data.empty() ? "Generated" : "Read") << " " << pieces_.train.size()
              << " chorales to learn from and " << pieces_.valid.size() << " to judge by. "
              << o_.settings.position << " positions, " << model_and_machine() << std::endl;
  }

  std::vector<std::string> files() const override {
    std::vector<std::string> all{"attention.svg", "attention.png"};
    if (o_.data.empty()) all.emplace_back("chorales.json");
    if (o_.generate > 0) all.insert(all.end(), {"generated.mid", "generated.svg", "generated.png"});
    if (o_.generate > 0 && o_.prime > 0)
      all.insert(all.end(), {"primed.mid", "primed.svg", "primed.png"});
    return all;
  }
  std::vector<RunInput> inputs() const override {
    return o_.data.empty() ? std::vector<RunInput>{} : std::vector<RunInput>{{"--data", o_.data}};
  }

  LossCurve loss_curve() override {
    return {.title = "Loss of the " + o_.settings.position + " model",
            .references = {{"bigram per voice", baselines_.bigram}}};
  }

  double validate() override { return validate(o_.settings.length); }
  double validate(int64_t stride) {
    return told_with(str("validation after step ", training_->step()), [&] {
      return validation_loss(model(), pieces_.valid, o_.settings.length, stride,
                             2 * o_.settings.batch);
    });
  }

  void report() override {
    const double trained = trainer().seconds();
    std::cout << "Saved " << checkpoint() << "; now scoring the validation pieces" << std::endl;
    const double loss = validate(std::min(o_.final_stride, o_.settings.length));
    std::cout << "Validation loss, nats per token (" << training_->step() << " steps, "
              << nn::duration_text(trained) << "):\n"
              << "  unigram           " << fixed(baselines_.unigram, 4) << "\n"
              << "  bigram per voice  " << fixed(baselines_.bigram, 4) << "\n"
              << "  " << std::left << std::setw(18) << o_.settings.position + " model"
              << fixed(loss, 4) << std::endl;
    show(ReportTable{"Validation loss, nats per token",
                     {"", "loss"},
                     {{"unigram", fixed(baselines_.unigram, 4)},
                      {"bigram per voice", fixed(baselines_.bigram, 4)},
                      {"model", fixed(loss, 4)}}});
    draw_curve();
    draw_attention();
    if (o_.generate > 0) write_music();
  }

  void draw_attention() {
    const int64_t length = std::min<int64_t>(128, o_.settings.length);
    std::optional<Tensor> opening;
    scoring_batches({pieces_.valid.front()}, length, length, 1, [&](const nn::Batch& batch) {
      if (!opening) opening = batch.inputs;
    });
    const nn::EvalMode guard(model());
    const std::vector<Tensor> weights = model().attention_weights(opening->to(model().device()));
    std::vector<HeatMap> maps;
    for (const int64_t layer : {int64_t(0), int64_t(weights.size()) - 1}) {
      for (int64_t head = 0; head < std::min<int64_t>(4, o_.settings.heads); ++head)
        maps.push_back({"layer " + std::to_string(layer + 1) + ", head " + std::to_string(head + 1),
                        int(length), int(length),
                        weights[size_t(layer)][0][head].to_vector<float>()});
      if (weights.size() == 1) break;
    }
    show_maps("attention",
              {.title = "Attention of the first and the last layer: query downwards, key to the "
                        "right",
               .rows = "query",
               .columns = "key",
               .maps = std::move(maps)});
  }

  void write_music() {
    const int64_t limit = o_.settings.cache_limit(o_.settings.positions(), o_.settings.length);
    const auto write = [&](const std::string& name, const std::string& title,
                           const Chorale& opening, int64_t steps) {
      const Chorale piece = continue_chorale(training_->model, opening, steps, limit,
                                             o_.temperature, o_.top_p, o_.settings.seed);
      if (piece.steps.empty()) {
        std::cout << name << ": the model ended the piece at once; nothing written\n";
        return;
      }
      show_music(name, title, to_song(piece), piano_roll(piece, title));
    };
    write("generated", "Written from nothing", {}, o_.generate);
    if (o_.prime == 0) return;
    Chorale opening = pieces_.valid.front();
    const size_t primed = std::min(opening.steps.size(), size_t(o_.prime));
    opening.steps.resize(primed);
    write("primed", "The first " + std::to_string(primed) + " sixteenths are given", opening,
          std::max<int64_t>(0, o_.generate - int64_t(primed)));
  }

  Options o_;
  ChoraleSet pieces_;
  Losses baselines_{};
};

int run(Options& options) {
  resolve(options);
  if (options.run.parameters) return print_parameters<nn::LanguageModel>(options.settings.model());
  return Run(options)();
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::Options>(
      argc, argv, "train_chorales",
      "Trains a Music Transformer on four-voice chorales and lets it write some.");
}
