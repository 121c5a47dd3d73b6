// Trains a model of piano music on MIDI files, with any attention and position, measures how it
// predicts beyond the length it was trained on, and lets it write a piece.
//
// In: --data DIR, or pieces that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, the loss against the position as a table and a picture, how far attention depends
// on distance alone (position_measures.csv), pictures of the loss and of attention, and the piece
// as MIDI and as a piano roll.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <optional>
#include <utility>

#include "examples/common/counting.h"
#include "examples/common/settings.h"
#include "examples/piano/piano_measures.h"
#include "examples/piano/piano_options.h"
#include "examples/piano/piano_report.h"
#include "examples/piano/piano_training.h"
#include "examples/training/model_run.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"

namespace stretto::examples {
namespace {

class Run : public ModelRun<PianoTraining> {
 public:
  explicit Run(PianoOptions options) : ModelRun(options.run), o_(std::move(options)) {}

 private:
  const PianoSettings& settings() const { return o_.settings; }

  void prepare() override {
    const PianoTokens& language = settings().language();
    const Device device = use_device(settings().steps, settings().least_memory(),
                                     "--layers, --d-model, --d-hidden, --length or --batch");
    check_sequence_parallel(settings().length, settings().weights());
    library_ = o_.data.empty() ? generated_library(settings().seed, language)
                               : read_library({.folder = o_.data,
                                               .split = o_.split,
                                               .every = o_.every,
                                               .pedal = settings().pedal},
                                              language);
    validation_ = windows(library_.valid, language, settings().length, o_.validation_windows);
    require(!validation_.empty(), "--length " + as_text(settings().length) +
                                      ": no piece to validate by has so many tokens");
    const auto& judges = library_.test.empty() ? library_.valid : library_.test;
    evaluation_ = windows(judges, language, o_.eval_length, o_.eval_windows);
    require(!evaluation_.empty(), "--eval-length " + as_text(o_.eval_length) +
                                      ": no piece to judge by has so many tokens");
    TokenCounts counts(language.vocabulary);
    for (const PianoPiece& piece : library_.train) {
      counts.add(piece.tokens);
      n_tokens_ += int64_t(piece.tokens.size());
    }
    std::vector<std::vector<int>> judged;
    for (const PianoPiece& piece : judges) judged.push_back(piece.tokens);
    baselines_ = counts.loss(judged);
    n_train_ = int64_t(library_.train.size());
    if (run_.report_only) return load_model(settings().model(), settings().weights(), device);
    make_training(settings(), std::move(library_.train), device);
  }

  void begin() override {
    std::cout << (o_.data.empty() ? "Generated " : "Read ") << n_train_ << " pieces of "
              << n_tokens_ << " tokens to learn from, " << library_.valid.size()
              << " to validate by and " << library_.test.size() << " to test by";
    if (library_.left_out > 0) std::cout << "; left out " << library_.left_out;
    if (!library_.skipped.empty())
      std::cout << "; skipped " << library_.skipped.size()
                << ", the first: " << library_.skipped.front();
    if (!library_.locked.empty()) std::cout << "; " << library_.locked;
    if (library_.damaged.files() > 0) std::cout << "; " << library_.damaged.text();
    std::cout << ". " << settings().tokens << ", attention " << settings().attention
              << ", position " << settings().position << ", " << model_and_machine() << std::endl;
  }

  LossCurve loss_curve() override {
    return {
        .title = "Loss of " + settings().attention + " attention, position " + settings().position,
        .references = {{"bigram", baselines_.bigram}}};
  }

  double validate() override { return mean_loss(validation_, settings().length); }
  std::vector<std::string> files() const override {
    std::vector<std::string> all{"evaluation.csv",    "position_loss.csv", "position_loss.svg",
                                 "position_loss.png", "attention.svg",     "attention.png"};
    if (o_.generate > 0) all.insert(all.end(), {"generated.mid", "generated.svg", "generated.png"});
    if (is_stochastic(settings().position))
      all.insert(all.end(), {"templates.svg", "templates.png"});
    if (has_measures()) all.emplace_back("position_measures.csv");
    return all;
  }

  std::vector<RunInput> inputs() const override {
    std::vector<RunInput> all;
    if (!o_.data.empty()) all.push_back({"--data", o_.data, true});
    if (!o_.split.empty()) all.push_back({"--split", o_.split});
    return all;
  }

  std::vector<double> losses(const std::vector<PianoWindow>& all, int64_t length) {
    return told_with(str("evaluation with length ", length),
                     [&] { return loss_by_position(model(), all, length, o_.eval_batch); });
  }
  double mean_loss(const std::vector<PianoWindow>& all, int64_t length) {
    return mean_of(losses(all, length), 0, length);
  }

  void report() override {
    if (!run_.report_only)
      std::cout << saved() << ", " << nn::duration_text(trainer().seconds()) << "; now scoring "
                << evaluation_.size() << " windows" << std::endl;
    const int64_t n = o_.eval_length, trained = std::min(settings().length, n);
    const std::vector<double> all = losses(evaluation_, n);
    const double within = mean_of(all, 0, trained), beyond = mean_of(all, trained, n);
    std::cout << "Loss of the pieces " << (library_.test.empty() ? "to validate by" : "to test by")
              << ", nats per token:\n";
    ReportTable table{"Loss of the pieces held out, nats per token", {"", "loss"}, {}};
    line(table, "unigram", baselines_.unigram);
    line(table, "bigram", baselines_.bigram);
    line(table, "model, positions 1 to " + as_text(trained), within);
    if (n > trained)
      line(table, "model, positions " + as_text(trained + 1) + " to " + as_text(n), beyond);
    show(std::move(table));
    write_losses(all, trained, within, beyond);
    if (!run_.report_only) draw_curve();
    if (has_measures()) measure_position();
    draw_attention();
    if (o_.generate > 0) write_music();
  }

  static void line(ReportTable& table, const std::string& what, double nats) {
    std::cout << "  " << std::left << std::setw(36) << what << fixed(nats, 4) << std::endl;
    table.rows.push_back({what, fixed(nats, 4)});
  }

  void write_losses(const std::vector<double>& all, int64_t trained, double within, double beyond) {
    nn::MetricsCsv(path("evaluation.csv"),
                   {"windows", "length", "trained_length", "within", "beyond", "unigram", "bigram"})
        .row({double(evaluation_.size()), double(all.size()), double(settings().length), within,
              beyond, baselines_.unigram, baselines_.bigram});
    const auto buckets =
        position_buckets(all, trained, std::max<int64_t>(1, settings().length / 16));
    nn::MetricsCsv table(path("position_loss.csv"), {"first", "last", "nats_per_token"});
    for (const PositionBucket& b : buckets)
      table.row({double(b.first + 1), double(b.last), b.loss});
    show_chart("position_loss", {{.title = "Loss with " + settings().attention +
                                           " attention, position " + settings().position +
                                           ", trained on " + as_text(settings().length) + " tokens",
                                  .x_label = "position",
                                  .y_label = "nats per token"},
                                 position_curves(buckets, trained)});
  }

  // Of the scores of softmax, which performers approximate.
  bool has_measures() const {
    return settings().attention == "softmax" || settings().attention.starts_with("performer");
  }

  void measure_position() {
    nn::MetricsCsv table(path("position_measures.csv"),
                         {"first", "last", "lags", "translation_invariance", "monotonicity"});
    ReportTable told{"Attention of the first layer to repeated tokens, its best head (0 is best)",
                     {"positions", "lags below", "translation invariance", "monotonicity"},
                     {}};
    std::cout << "Attention of the first layer to repeated tokens, its best head:\n"
              << "  positions      lags   translation invariance   monotonicity (0 is best)\n";
    for (const PositionMeasure& m :
         position_measures(model(), settings().length, o_.eval_length, settings().seed)) {
      const std::string rows = as_text(m.first + 1) + " to " + as_text(m.last);
      std::cout << "  " << std::left << std::setw(13) << rows << "< " << std::setw(5) << m.lags
                << std::setw(25) << fixed(m.invariance, 4) << fixed(m.monotonicity, 4) << "\n";
      table.row(
          {double(m.first + 1), double(m.last), double(m.lags), m.invariance, m.monotonicity});
      told.rows.push_back(
          {rows, as_text(m.lags), fixed(m.invariance, 4), fixed(m.monotonicity, 4)});
    }
    std::cout << std::flush;
    show(std::move(told));
  }

  void draw_attention() {
    const nn::EvalMode guard(model());
    const AttentionPictureOptions shown{.layers = read_list("--picture-layers", o_.picture_layers),
                                        .heads = o_.picture_heads};
    const Device device = model().device();
    const Tensor tokens = window_batch(evaluation_, 0, 1, o_.picture_length).inputs.to(device);
    show_maps("attention", attention_maps(model(), tokens, shown));
    if (const auto templates = template_maps(model(), o_.picture_length, shown))
      show_maps("templates", *templates);
  }

  void write_music() {
    o_.writing.tokens = o_.generate;
    o_.writing.seed = settings().seed;
    o_.writing.limit = settings().cache_limit(settings().positions(), 0);
    const std::vector<int> tokens = write_piano(model(), settings().language(), {}, o_.writing);
    const Song song = settings().language().play(tokens);
    const std::string title = "Written from nothing";
    show_music("generated", title, song, song_roll(song, title));
    std::cout << "Wrote " << path("generated.mid") << ": " << tokens.size() << " tokens, "
              << song.tracks.front().notes.size() << " notes" << std::endl;
  }

  PianoOptions o_;
  PianoLibrary library_;
  int64_t n_train_ = 0, n_tokens_ = 0;
  std::vector<PianoWindow> validation_, evaluation_;
  CountingLoss baselines_{};
};

}  // namespace

static int run(PianoOptions& options) {
  resolve(options);
  if (options.run.parameters) {
    const PianoSettings& s = options.settings;
    return print_parameters<nn::LanguageModel>(
        s.model(),
        "Tokens " + s.tokens + ", attention " + s.attention + ", position " + s.position);
  }
  return Run(options)();
}

}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::PianoOptions>(
      argc, argv, "train_music",
      "Trains a model of piano music on MIDI files, measures it and lets it write.");
}
