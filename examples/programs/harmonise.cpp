// Trains a Transformer to harmonise chorales: its encoder reads the soprano, its decoder writes
// alto, tenor and bass.
//
// In: --data FILE, or chorales that it generates itself. Out, in --out DIR: checkpoint,
// metrics.csv, a picture of the loss, and validation pieces as they were composed and as the model
// harmonises their soprano, as MIDI and as piano rolls.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "examples/chorales/baselines.h"
#include "examples/chorales/chorale_roll.h"
#include "examples/chorales/chorale_song.h"
#include "examples/chorales/harmonisation.h"
#include "examples/training/model_run.h"
#include "examples/training/run_settings.h"
#include "nn/training/progress.h"

namespace stretto::examples {
namespace {

struct Options {
  RunOptions run{.out = "out/harmony"};
  HarmonySettings settings;
  std::string data;
  int64_t beam = 4;
  int64_t pieces = 2;
};

void describe(CLI::App& app, Options& o) {
  HarmonySettings& s = o.settings;
  app.add_option("--data", o.data, "Four-voice chorales as JSON; without it some are generated")
      ->option_text("FILE");
  describe(app, o.run);
  describe_steps_and_seed(app, s.steps, s.seed);
  app.add_option("--label-smoothing", s.label_smoothing,
                 "Share of the training target that is spread over all tokens");
  describe_chorales(app, s, {s.positions(true), s.positions(false)});
  app.add_option("--length", s.length, "Sixteenths that the model sees at once");
  app.add_option("--beam", o.beam, "Harmonies that are followed at a time (1: greedy)");
  app.add_option("--pieces", o.pieces, "Validation pieces to harmonise (0: none)");
}

// Of a resumed run, its own settings, which must be those that are given.
void resolve(Options& o) {
  if (!o.run.resume.empty())
    take_saved(o.settings, saved_settings<HarmonySettings>(o.run.resume, "harmonise"), o.run);
  o.settings.check();
  require_range("--beam", o.beam, 1, 64);
  require_range("--pieces", o.pieces, 0, 1000);
}

class Run : public ModelRun<HarmonyTraining> {
 public:
  explicit Run(Options options) : ModelRun(options.run), o_(std::move(options)) {}

 private:
  void prepare() override {
    const Device device = use_device(o_.settings.steps, o_.settings.least_memory(),
                                     "--layers, --d-model, --d-hidden, --length or --batch");
    pieces_ = o_.data.empty() ? generate_chorales(o_.settings.seed) : load_chorales(o_.data);
    o_.pieces = std::min(o_.pieces, int64_t(pieces_.valid.size()));
    make_training(o_.settings, pieces_.train, device);
  }

  void begin() override {
    if (o_.data.empty()) save_chorales(path("chorales.json"), pieces_);
    unigram_ = voice_unigram_loss(pieces_.train, pieces_.valid, 1);
    bigram_ = voice_bigram_loss(pieces_.train, pieces_.valid, 1);
    std::cout << (o_.data.empty() ? "Generated" : "Read") << " " << pieces_.train.size()
              << " chorales to learn from and " << pieces_.valid.size()
              << " to judge by. Position: " << o_.settings.position << ", " << model_and_machine()
              << std::endl;
  }

  std::vector<std::string> files() const override {
    std::vector<std::string> names;
    if (o_.data.empty()) names.emplace_back("chorales.json");
    for (int64_t i = 1; i <= o_.pieces; ++i)
      for (const char* kind : {"composed-", "harmonised-"})
        for (const char* ending : {".mid", ".svg", ".png"})
          names.push_back(kind + std::to_string(i) + ending);
    return names;
  }

  std::vector<RunInput> inputs() const override {
    return o_.data.empty() ? std::vector<RunInput>{} : std::vector<RunInput>{{"--data", o_.data}};
  }

  LossCurve loss_curve() override {
    return {.title = "Loss of alto, tenor and bass, given the soprano",
            .references = {{"bigram per voice", bigram_}}};
  }

  double validate() override { return validate(o_.settings.length); }
  double validate(int64_t stride) {
    return told_with(str("validation after step ", training_->step()), [&] {
      return harmony_loss(model(), pieces_.valid, o_.settings.length, stride,
                          2 * o_.settings.batch);
    });
  }

  void report() override {
    const double trained = trainer().seconds();
    std::cout << "Saved " << checkpoint() << "; now scoring the validation pieces" << std::endl;
    const double loss = validate(o_.settings.length / 2);
    std::cout << "Validation loss of alto, tenor and bass, nats per token (" << training_->step()
              << " steps, " << nn::duration_text(trained) << "):\n"
              << "  unigram per voice " << fixed(unigram_, 4) << "\n"
              << "  bigram per voice  " << fixed(bigram_, 4) << "\n"
              << "  model             " << fixed(loss, 4) << std::endl;
    show(ReportTable{"Validation loss of alto, tenor and bass, nats per token",
                     {"", "loss"},
                     {{"unigram per voice", fixed(unigram_, 4)},
                      {"bigram per voice", fixed(bigram_, 4)},
                      {"model", fixed(loss, 4)}}});
    draw_curve();
    for (int64_t i = 1; i <= o_.pieces; ++i) write_music(i);
  }

  void write_music(int64_t number) {
    const Chorale& composed = pieces_.valid[size_t(number - 1)];
    const Chorale found = harmonise(training_->model, composed, o_.settings.length, o_.beam);
    const std::string n = std::to_string(number);
    std::cout << "harmonised-" << n << ": " << fixed(100 * agreement(found, composed), 1)
              << " % of the notes below the soprano are those of composed-" << n << std::endl;
    const auto write = [&](const std::string& name, const Chorale& piece,
                           const std::string& title) {
      show_music(name, title, to_song(piece), piano_roll(piece, title));
    };
    write("composed-" + n, composed, "Validation piece " + n + ", as composed");
    write("harmonised-" + n, found,
          "Validation piece " + n + ": the soprano is given, beam " + std::to_string(o_.beam));
  }

  Options o_;
  ChoraleSet pieces_;
  double unigram_ = 0, bigram_ = 0;
};

int run(Options& options) {
  resolve(options);
  if (options.run.parameters)
    return print_parameters<nn::SequenceToSequence>(options.settings.model());
  return Run(options)();
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::Options>(
      argc, argv, "harmonise",
      "Trains a Transformer to write alto, tenor and bass to the soprano of chorales.");
}
