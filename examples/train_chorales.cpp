// Trains a Music Transformer on four-voice chorales, and lets it write some.
//
// In: --data FILE, or chorales that it generates itself. Out, in --out DIR: checkpoint,
// metrics.csv, pictures of the loss, of attention and of the music, and the music as MIDI.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "autograd/tape.h"
#include "core/blas.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/interrupt.h"
#include "examples/common/memory.h"
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
  std::function<bool(const std::string&)> given;  // whether an option is on the command line
};

void describe(CLI::App& app, Options& o) {
  ChoraleSettings& s = o.settings;
  o.given = [&app](const std::string& option) { return app.count(option) > 0; };
  app.add_option("--data", o.data, "Four-voice chorales as JSON; without it some are generated")
      ->option_text("FILE");
  app.add_option("--out", o.out, "Folder for everything that is made")->option_text("DIR");
  app.add_option("--resume", o.resume, "Continue from a checkpoint, with its settings")
      ->option_text("FILE");
  app.add_option("--minutes", o.minutes, "Train this long; the learning rate follows the clock");
  app.add_option("--steps", s.steps,
                 "Train this many steps instead: repeatable to the last bit (0: not set)");
  app.add_option("--seed", s.seed, "Of the first weights, the crops and the music")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "it must not be negative" : "";
      });
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
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
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

// Every option that the checkpoint does not keep; ChoraleSettings::check() has the others.
void check(const Options& o) {
  const auto range = [](const char* option, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      throw UsageError(str(option, " ", value, ": accepted are ", least, " to ", most));
  };
  const auto number = [](const char* option, double value, bool accepted, const char* what) {
    if (!accepted) throw UsageError(str(option, " ", value, ": must be ", what));
  };
  range("--threads", o.threads, 0, 256);
  range("--save-every", o.save_every, 1, INT64_MAX);
  range("--evaluate-every", o.evaluate_every, 0, INT64_MAX);
  range("--final-stride", o.final_stride, 1, INT64_MAX);
  range("--generate", o.generate, 0, 8000);
  range("--prime", o.prime, 0, 8000);
  number("--minutes", o.minutes, o.minutes > 0 && std::isfinite(o.minutes), "a number above 0");
  number("--temperature", o.temperature, o.temperature >= 0 && std::isfinite(o.temperature),
         "a number of at least 0");
  number("--top-p", o.top_p, o.top_p > 0 && o.top_p <= 1, "above 0 and at most 1");
  if (o.settings.steps > 0 && o.given("--minutes"))
    throw UsageError(str("--minutes: this run takes ", o.settings.steps, " steps, by --steps"));
}

// The settings of the checkpoint. One that is also on the command line must be the same there.
ChoraleSettings settings_to_resume(const Options& o) {
  const auto state = as_usage([&] { return nn::load_training_state(o.resume); });
  const ChoraleSettings saved = ChoraleSettings::from_notes(state.notes, o.resume);
  const nn::Metadata asked = o.settings.to_notes();
  for (const auto& [name, value] : saved.to_notes()) {
    std::string option = "--" + name;
    std::replace(option.begin(), option.end(), '_', '-');
    if (o.given(option) && asked.at(name) != value)
      throw UsageError(option + " " + asked.at(name) + ": the run of " + o.resume + " has " +
                       value + "; it can only go on with that");
  }
  return saved;
}

// A model that no memory can hold is refused here; what cannot be foreseen throws OutOfMemory
// later, before the system would end a program at random.
void check_memory(const ChoraleSettings& settings) {
  const int64_t available = available_memory();
  const double needed = settings.least_memory();
  if (needed > double(available))
    throw UsageError("this model and batch need at least " + fixed(needed / 1e9, 1) +
                     " GB of memory, and " + fixed(double(available) / 1e9, 1) +
                     " GB are free; make --layers, --d-model, --d-hidden, --length or --batch "
                     "smaller");
  set_memory_limit(available);
}

// Whether files can be made or replaced in a folder, as far as can be seen without trying.
void check_writable(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const auto require = [](bool good, const fs::path& path, const std::string& why) {
    if (!good) throw UsageError("--out: cannot write " + path.string() + ": " + why);
  };
  std::error_code none;
  if (!fs::exists(folder, none)) return;  // it will be made
  require(fs::is_directory(folder, none), folder, "it is not a folder");
  require(::access(folder.c_str(), W_OK | X_OK) == 0, folder, std::strerror(errno));
  for (const char* name :
       {"checkpoint.safetensors", "metrics.csv", "chorales.json", "loss.png", "attention.png",
        "generated.mid", "generated.png", "primed.mid", "primed.png"}) {
    const fs::path file = folder / name;
    if (!fs::exists(file, none)) continue;
    require(fs::is_regular_file(file, none), file, "it is not a file");
    require(::access(file.c_str(), W_OK) == 0, file, std::strerror(errno));
  }
}

struct Losses {
  double unigram, bigram;
};

class Run {
 public:
  explicit Run(Options options) : o_(std::move(options)) {}

  int operator()() {
    install_interrupt_handlers();
    prepare();
    try {
      begin();
      try {
        train();
        save();
        report();
      } catch (const Interrupted&) {
        save();
        std::cout << "Stopped at step " << training_->step()
                  << ". To go on, repeat the command with --resume " << checkpoint() << std::endl;
        return 130;
      }
    } catch (const UsageError& e) {
      throw std::runtime_error(e.what());  // too late for "nothing was changed"
    }
    return 0;
  }

 private:
  std::string path(const std::string& name) const {
    return (std::filesystem::path(o_.out) / name).string();
  }
  std::string checkpoint() const { return path("checkpoint.safetensors"); }
  void save() const { training_->save(checkpoint(), seconds()); }

  // Everything that can be wrong is found here, before anything is written.
  void prepare() {
    if (!o_.resume.empty()) o_.settings = settings_to_resume(o_);
    o_.settings.check();
    check(o_);
    const Device device = as_usage([&] {
      const Device d(o_.device);
      check_device("--device", d);
      return d;
    });
    if (device.is_cpu()) check_memory(o_.settings);
    if (o_.threads > 0) set_num_threads(o_.threads);
    set_anomaly_detection(o_.anomaly);

    pieces_ = o_.data.empty() ? generate_chorales(o_.settings.seed) : load_chorales(o_.data);
    as_usage([&] {
      training_.emplace(o_.settings, pieces_.train, device);
      if (!o_.resume.empty()) before_ = training_->load(o_.resume);
    });
    check_writable(o_.out);
    std::error_code error;
    std::filesystem::create_directories(o_.out, error);
    if (error) throw UsageError("--out: cannot make the folder " + o_.out + ": " + error.message());
    const std::vector<std::string> columns{
        "step",          "seconds",       "train_loss",       "valid_loss",
        "learning_rate", "gradient_norm", "tokens_per_second"};
    metrics_.emplace(o_.resume.empty()
                         ? MetricsCsv(path("metrics.csv"), columns)
                         : MetricsCsv::resume(path("metrics.csv"), columns, training_->step()));
  }

  void begin() {
    started_ = now();
    if (o_.data.empty()) save_chorales(path("chorales.json"), pieces_);
    baselines_ = {unigram_loss(pieces_.train, pieces_.valid),
                  voice_bigram_loss(pieces_.train, pieces_.valid)};
    std::cout << (o_.data.empty() ? "Generated" : "Read") << " " << pieces_.train.size()
              << " chorales to learn from and " << pieces_.valid.size() << " to judge by. "
              << o_.settings.attention << " attention, " << training_->model.parameter_count()
              << " parameters, " << num_threads() << " threads, " << blas_description()
              << std::endl;
  }

  double seconds() const { return before_ + now() - started_; }

  // How much of the run is done, 0 to 1.
  double progress() const {
    return o_.settings.steps > 0 ? double(training_->step()) / double(o_.settings.steps)
                                 : seconds() / (60 * o_.minutes);
  }

  // Whether it is time to evaluate after a step that began at `before`.
  bool evaluation_is_due(double before) const {
    if (o_.evaluate_every > 0) return training_->step() % o_.evaluate_every == 0;
    return std::floor(20 * progress()) > std::floor(20 * before);
  }

  double validate(int64_t stride) {
    try {
      return validation_loss(training_->model, pieces_.valid, o_.settings.length, stride,
                             2 * o_.settings.batch);
    } catch (const Error& e) {
      throw Error(str("validation after step ", training_->step(), ": ", e.what()));
    }
  }

  void train() {
    Progress bar(o_.settings.steps, {.starting_fraction = progress()});
    const double tokens = double(o_.settings.batch * o_.settings.length);
    double sum = 0, weight = 0, rate = 0;  // the loss and the speed are shown smoothed
    while (progress() < 1) {
      check_interrupt();
      const double before = progress(), begin = now();
      const StepResult result = training_->train_step(before);
      const double speed = tokens / (now() - begin);
      rate = rate == 0 ? speed : 0.95 * rate + 0.05 * speed;
      sum = 0.98 * sum + 0.02 * result.loss;
      weight = 0.98 * weight + 0.02;
      const int64_t step = training_->step();
      bar.update(step, progress(), sum / weight, rate);
      if (evaluation_is_due(before)) {
        const double valid = validate(o_.settings.length);
        metrics_->row({double(step), seconds(), sum / weight, valid, training_->learning_rate(),
                       result.gradient_norm, rate});
        bar.message("step " + std::to_string(step) + ": loss " + fixed(sum / weight, 4) +
                    ", validation " + fixed(valid, 4));
      }
      if (step % o_.save_every == 0) save();
    }
    bar.finish();
  }

  void report() {
    const double trained = seconds();
    std::cout << "Saved " << checkpoint() << "; now scoring the validation pieces" << std::endl;
    const double loss = validate(std::min(o_.final_stride, o_.settings.length));
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
    std::vector<double> steps, train, valid;
    for (const std::vector<double>& row : metrics_->rows()) {
      steps.push_back(row[0]);
      train.push_back(row[2]);
      valid.push_back(row[3]);
    }
    if (steps.empty()) return;
    write_png(path("loss.png"),
              line_chart({.title = "Loss of the " + o_.settings.attention + " model",
                          .x_label = "step",
                          .y_label = "nats per token",
                          .reference_lines = {{"bigram per voice", baselines_.bigram}}},
                         {{"training", steps, train}, {"validation", steps, valid}}));
  }

  void draw_attention() {
    const int64_t length = std::min<int64_t>(128, o_.settings.length);
    std::optional<Tensor> opening;
    scoring_batches({pieces_.valid.front()}, length, length, 1, [&](const Batch& batch) {
      if (!opening) opening = batch.inputs;
    });
    training_->model.eval();
    const std::vector<Tensor> weights =
        training_->model.attention_weights(opening->to(training_->model.embedding.weight.device()));
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
    const auto write = [&](const std::string& name, const std::string& title,
                           const Chorale& opening, int64_t steps) {
      const Chorale piece = continue_chorale(training_->model, opening, steps, o_.settings.length,
                                             o_.temperature, o_.top_p, o_.settings.seed);
      if (piece.steps.empty()) {
        std::cout << name << ": the model ended the piece at once; nothing written\n";
        return;
      }
      write_midi(path(name + ".mid"), to_song(piece));
      write_png(path(name + ".png"), piano_roll(piece, title));
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
  std::optional<ChoraleTraining> training_;
  std::optional<MetricsCsv> metrics_;
  Losses baselines_{};
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
