// Trains a Music Transformer on four-voice chorales, and lets it write some.
//
// In: --data FILE, or chorales that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// pictures of the loss, of attention and of the music, and the music as MIDI.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "autograd/tape.h"
#include "core/blas.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/interrupt.h"
#include "examples/common/metrics.h"
#include "examples/common/progress.h"
#include "examples/music/baselines.h"
#include "examples/music/chorale_training.h"
#include "examples/music/midi.h"
#include "examples/plot/chart.h"

namespace stretto::examples {
namespace {

struct Options {
  ChoraleSettings settings;
  std::string data;
  std::string out = "out/chorales";
  std::string resume;
  double minutes = 4;
  int threads = 0;
  std::string device = "cpu";
  int64_t save_every = 100;
  int64_t evaluate_every = 0;
  int64_t final_stride = 16;
  int64_t generate = 128;
  int64_t prime = 32;
  double temperature = 1;
  double top_p = 0.95;
  bool anomaly = false;
};

void describe(CLI::App& app, Options& o) {
  ChoraleSettings& s = o.settings;
  app.add_option("--data", o.data, "Four-voice chorales as JSON; without it some are generated")
      ->option_text("FILE");
  app.add_option("--out", o.out, "Folder for everything that is made")->option_text("DIR");
  app.add_option("--resume", o.resume, "Continue from a checkpoint, with its settings")
      ->option_text("FILE");
  app.add_option("--minutes", o.minutes, "Train this long; the learning rate follows the clock");
  app.add_option("--steps", s.steps,
                 "Train this many steps instead: repeatable to the last bit (0: not set)");
  app.add_option("--seed", s.seed, "Of the first weights, the crops and the music");
  app.add_option("--threads", o.threads, "Threads (0: all cores)");
  app.add_option("--device", o.device, "cpu, cuda or cuda:N");
  app.add_option("--attention", s.attention, "relative or absolute");
  app.add_option("--layers", s.layers, "Layers");
  app.add_option("--d-model", s.d_model, "Width of the model");
  app.add_option("--heads", s.heads, "Attention heads");
  app.add_option("--d-hidden", s.d_hidden, "Width of the feed-forward networks");
  app.add_option("--dropout", s.dropout, "Dropout on every residual branch");
  app.add_option("--attention-dropout", s.attention_dropout, "Dropout on attention weights");
  app.add_option("--length", s.length, "Tokens of context (4 per sixteenth)");
  app.add_option("--batch", s.batch, "Crops per step");
  app.add_option("--transpose", s.transpose, "Crops are moved by up to so many semitones");
  app.add_option("--learning-rate", s.learning_rate, "Highest learning rate of AdamW");
  app.add_option("--warmup", s.warmup, "Steps of linear warm-up");
  app.add_option("--weight-decay", s.weight_decay, "Decoupled weight decay");
  app.add_option("--clip", s.clip, "Largest norm of a step's gradient");
  app.add_option("--save-every", o.save_every, "Steps between checkpoints");
  app.add_option("--evaluate-every", o.evaluate_every,
                 "Steps between evaluations (0: twenty in all)");
  app.add_option("--final-stride", o.final_stride,
                 "At the end every token is scored with at least length - stride of context");
  app.add_option("--generate", o.generate, "Sixteenths of music to write (0: none)");
  app.add_option("--prime", o.prime, "Sixteenths of a validation piece to continue");
  app.add_option("--temperature", o.temperature, "Of the drawing of tokens");
  app.add_option("--top-p", o.top_p, "Draw among the likeliest tokens that reach this share");
  app.add_flag("--anomaly", o.anomaly, "Find the op that first makes NaN or infinity (slow)");
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

// The library's complaints about a user's file or device are the user's to mend.
template <class F>
auto as_usage(F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

struct Losses {
  double unigram, bigram;
};

class Run {
 public:
  explicit Run(Options options) : o_(std::move(options)) {}

  int operator()() {
    prepare();
    const bool finished = train();
    training_->save(path("checkpoint.safetensors"), seconds());
    if (!finished) {
      std::cout << "Stopped at step " << training_->step() << "; go on with --resume "
                << path("checkpoint.safetensors") << std::endl;
      return 130;
    }
    report();
    return 0;
  }

 private:
  std::string path(const char* name) const {
    return (std::filesystem::path(o_.out) / name).string();
  }

  // Everything that can be wrong is found here, before anything is written.
  void prepare() {
    if (!o_.resume.empty()) {
      const auto state = as_usage([&] { return nn::load_training_state(o_.resume); });
      const int64_t steps = o_.settings.steps;
      o_.settings = ChoraleSettings::from_notes(state.notes, o_.resume);
      if (steps > 0 && steps != o_.settings.steps)
        throw UsageError("--steps " + std::to_string(steps) + ": the checkpoint " + o_.resume +
                         " is of a run of " + std::to_string(o_.settings.steps) +
                         " steps (0: by the clock)");
    }
    o_.settings.check();
    if (!(o_.minutes > 0)) throw UsageError("--minutes: must be above 0");
    if (o_.threads < 0 || o_.save_every < 1 || o_.evaluate_every < 0 || o_.final_stride < 1 ||
        o_.generate < 0 || o_.prime < 0)
      throw UsageError(
          "--threads, --evaluate-every, --generate and --prime must not be negative, --save-every "
          "and --final-stride must be above 0");
    if (!(o_.temperature >= 0) || !(o_.top_p > 0) || o_.top_p > 1)
      throw UsageError("--temperature must be 0 or more, --top-p above 0 and at most 1");
    const Device device = as_usage([&] {
      const Device d(o_.device);
      check_device("train_chorales", d);
      return d;
    });
    if (o_.threads > 0) set_num_threads(o_.threads);
    set_anomaly_detection(o_.anomaly);

    pieces_ = o_.data.empty() ? generate_chorales(o_.settings.seed) : load_chorales(o_.data);
    training_.emplace(o_.settings, device);
    if (!o_.resume.empty()) before_ = as_usage([&] { return training_->load(o_.resume); });

    std::error_code error;
    std::filesystem::create_directories(o_.out, error);
    if (error) throw UsageError("--out " + o_.out + ": " + error.message());
    if (o_.data.empty()) save_chorales(path("chorales.json"), pieces_);
    const std::vector<std::string> columns{"step",          "seconds",       "train_loss",
                                           "valid_loss",    "learning_rate", "gradient_norm",
                                           "tokens_per_second"};
    metrics_.emplace(o_.resume.empty()
                         ? MetricsCsv(path("metrics.csv"), columns)
                         : MetricsCsv::resume(path("metrics.csv"), columns, training_->step()));
    baselines_ = {unigram_loss(pieces_.train, pieces_.valid),
                  voice_bigram_loss(pieces_.train, pieces_.valid)};
    std::cout << (o_.data.empty() ? "Generated" : "Read") << " " << pieces_.train.size()
              << " chorales to learn from and " << pieces_.valid.size() << " to judge by. "
              << o_.settings.attention << " attention, " << training_->model.parameter_count()
              << " parameters, " << num_threads() << " threads, " << blas_description() << std::endl;
  }

  double seconds() const { return before_ + now() - started_; }

  // How much of the run is done, 0 to 1.
  double progress() const {
    return o_.settings.steps > 0 ? double(training_->step()) / double(o_.settings.steps)
                                 : seconds() / (60 * o_.minutes);
  }

  // Trains to the end; false when the user stopped it.
  bool train() {
    install_interrupt_handlers();
    started_ = now();
    Progress bar(o_.settings.steps, {.starting_fraction = progress()});
    const double tokens = double(o_.settings.batch * o_.settings.length);
    double next_evaluation = progress() + 0.05, mean_loss = 0, weight = 0;
    double rate = 0;
    while (progress() < 1) {
      if (interrupted()) {
        bar.finish();
        return false;
      }
      const double begin = now();
      const StepResult result = training_->train_step(pieces_.train, progress());
      const double speed = tokens / (now() - begin);
      rate = rate == 0 ? speed : 0.95 * rate + 0.05 * speed;
      mean_loss = 0.98 * mean_loss + 0.02 * result.loss;
      weight = 0.98 * weight + 0.02;
      const int64_t step = training_->step();
      bar.update(step, progress(), mean_loss / weight, rate);
      const bool due = o_.evaluate_every > 0 ? step % o_.evaluate_every == 0
                                             : progress() >= next_evaluation;
      if (due) {
        next_evaluation += 0.05;
        const double valid = validation_loss(training_->model, pieces_.valid, o_.settings.length,
                                             o_.settings.length, o_.settings.batch);
        metrics_->row({double(step), seconds(), mean_loss / weight, valid,
                       training_->learning_rate(), result.gradient_norm, rate});
        curve_.steps.push_back(double(step));
        curve_.train.push_back(mean_loss / weight);
        curve_.valid.push_back(valid);
        bar.message("step " + std::to_string(step) + ": loss " + fixed(mean_loss / weight, 4) +
                    ", validation " + fixed(valid, 4));
      }
      if (step % o_.save_every == 0) training_->save(path("checkpoint.safetensors"), seconds());
    }
    bar.finish();
    return true;
  }

  void report() {
    const double trained = seconds();
    const double loss = validation_loss(training_->model, pieces_.valid, o_.settings.length,
                                        std::min(o_.final_stride, o_.settings.length),
                                        2 * o_.settings.batch);
    std::cout << "Validation loss, nats per token (" << training_->step() << " steps, "
              << duration_text(trained) << "):\n"
              << "  unigram           " << fixed(baselines_.unigram, 4) << "\n"
              << "  bigram per voice  " << fixed(baselines_.bigram, 4) << "\n"
              << "  " << std::left << std::setw(18) << o_.settings.attention + " model"
              << fixed(loss, 4) << std::endl;
    draw_curve();
    draw_attention();
    if (o_.generate > 0) write_music();
  }

  void draw_curve() {
    if (curve_.steps.empty()) return;
    write_png(path("loss.png"),
              line_chart({.title = "Loss of the " + o_.settings.attention + " model",
                          .x_label = "step",
                          .y_label = "nats per token",
                          .reference_lines = {{"bigram per voice", baselines_.bigram}}},
                         {{"training", curve_.steps, curve_.train},
                          {"validation", curve_.steps, curve_.valid}}));
  }

  void draw_attention() {
    const int64_t length = std::min<int64_t>(128, o_.settings.length);
    const Batch batch = scoring_batches({pieces_.valid.front()}, length, length, 1).front();
    training_->model.eval();
    const std::vector<Tensor> weights = training_->model.attention_weights(
        batch.inputs.to(training_->model.embedding.weight.device()));
    std::vector<HeatMap> maps;
    for (const int64_t layer : {int64_t(0), int64_t(weights.size()) - 1}) {
      for (int64_t head = 0; head < std::min<int64_t>(4, o_.settings.heads); ++head)
        maps.push_back({"layer " + std::to_string(layer + 1) + ", head " + std::to_string(head + 1),
                        int(length), int(length),
                        weights[size_t(layer)][0][head].to_vector<float>()});
      if (weights.size() == 1) break;
    }
    write_png(path("attention.png"),
              heat_maps("Attention of the first and the last layer: query downwards, key to the "
                        "right",
                        maps, 0.4));
  }

  void write_music() {
    const auto write = [&](const char* name, const std::string& title, const Chorale& opening,
                           int64_t steps) {
      const Chorale piece =
          continue_chorale(training_->model, opening, steps, o_.settings.length, o_.temperature,
                           o_.top_p, o_.settings.seed);
      if (piece.steps.empty()) {
        std::cout << name << ": the model ended the piece at once; nothing written\n";
        return;
      }
      write_midi(path((std::string(name) + ".mid").c_str()), to_song(piece));
      write_png(path((std::string(name) + ".png").c_str()), piano_roll(piece, title));
    };
    write("generated", "Written from nothing", {}, o_.generate);
    Chorale opening = pieces_.valid.front();
    const size_t primed = std::min(opening.steps.size(), size_t(o_.prime));
    opening.steps.resize(primed);
    write("primed", "The first " + std::to_string(primed) + " sixteenths are given", opening,
          std::max<int64_t>(0, o_.generate - int64_t(primed)));
  }

  Options o_;
  ChoraleSet pieces_;
  std::optional<ChoraleTraining> training_;
  std::optional<MetricsCsv> metrics_;
  Losses baselines_{};
  struct {
    std::vector<double> steps, train, valid;
  } curve_;
  double started_ = 0;
  double before_ = 0;  // seconds of earlier runs
};

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  using namespace stretto::examples;
  Options options;
  return run_program(
      argc, argv, "train_chorales",
      "Trains a Music Transformer on four-voice chorales and lets it write some.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return Run(options)(); });
}
