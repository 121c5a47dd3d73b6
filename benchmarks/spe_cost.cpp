// The cost of stochastic positional encoding (SPE): memory and time of one training step (forward,
// loss, backward, Adam) of the Performer for pop piano in "Relative Positional Encoding for
// Transformers with Linear Complexity" (Liutkus et al. 2021), with absolute positions and with SPE
// whose noise is shared by all layers. Prints ratios next to those of the paper's Table 5.
//
// Every round runs all variants once, so that other load of the machine affects them equally. The
// paper's model has 24 layers. With 8 (the default) the ratios of per-layer costs are the same, but
// a cost that does not grow with the number of layers has three times the weight.
//
// benchmarks/spe_cost_torch.py is the authors' scheme in PyTorch; benchmarks/spe_cost.sh runs both.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "autograd/profile.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "examples/common/command_line.h"
#include "nn/models/language_model.h"
#include "nn/optim/optim.h"
#include "nn/positions/spe.h"
#include "ops/create.h"
#include "ops/loss.h"

using namespace stretto;

namespace {

constexpr int64_t vocabulary = 333;

struct Settings {
  int64_t layers = 8, length = 2048, batch = 4;
  int64_t realizations = 64, sines = 5, taps = 128, ungated_taps = 512;
  int rounds = 5, threads = 2;
  std::vector<std::string> variants;
};

/// A row of Table 5: memory in GB, and hours for the given number of epochs.
struct Variant {
  const char* name;
  double gigabytes, hours, epochs;
};
constexpr Variant table_5[] = {{"ape", 14.34, 9.74, 72},
                               {"sine", 29.80, 17.92, 78},
                               {"sine-ungated", 18.29, 16.31, 78},
                               {"conv", 30.01, 28.02, 80},
                               {"conv-ungated", 18.99, 24.76, 68}};

nn::MakePositionalEncoding spe(const std::string& name, const Settings& o) {
  const bool gated = !name.ends_with("-ungated");
  if (name.starts_with("sine"))
    return nn::sine_spe({.realizations = o.realizations,
                         .sines = o.sines,
                         .gated = gated,
                         .shared = nn::SpeShare::draws});
  return nn::conv_spe({.realizations = o.realizations,
                       .taps = {gated ? o.taps : o.ungated_taps},
                       .gated = gated,
                       .shared = nn::SpeShare::draws});
}

nn::LanguageModel::Options model_options(const std::string& name, const Settings& o) {
  nn::LanguageModel::Options options = nn::music_performer(vocabulary);
  options.n_layers = o.layers;
  if (name == "ape") {
    options.input.sinusoid = nn::Sinusoid::interleaved;
  } else {
    options.layer.attention.position = spe(name, o);
  }
  return options;
}

/// A model in training, with the time and memory of its steps.
class Run {
 public:
  Run(const Variant& variant, const Settings& o) : paper(variant) {
    const int64_t before = memory_stats().live;
    manual_seed(1);
    model_ = std::make_unique<nn::LanguageModel>(model_options(variant.name, o));
    optimizer_ = std::make_unique<nn::Adam>(model_->parameters(), nn::Adam::Options{.lr = 1e-4});
    inputs_ = randint(0, vocabulary, {o.batch, o.length});
    targets_ = randint(0, vocabulary, {o.batch, o.length});
    train();  // creates the state of the optimizer
    held_ = memory_stats().live - before;
  }

  void step() {
    const int64_t others = memory_stats().live - held_;
    reset_peak_memory();
    const double begin = steady_seconds();
    train();
    times_.push_back(steady_seconds() - begin);
    peak_ = std::max(peak_, memory_stats().peak - others);
  }

  int64_t parameters() const { return model_->parameter_count(); }
  /// Returns the peak bytes: parameters, gradients, Adam's state, and the tensors of a step.
  double peak() const { return double(peak_); }
  double seconds() const {
    std::vector<double> sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    const size_t n = sorted.size();
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
  }

  const Variant paper;

 private:
  void train() {
    cross_entropy((*model_)(inputs_), targets_).backward();
    optimizer_->step();
    optimizer_->zero_grad();
  }

  std::unique_ptr<nn::LanguageModel> model_;
  std::unique_ptr<nn::Adam> optimizer_;
  Tensor inputs_, targets_;
  int64_t held_ = 0, peak_ = 0;
  std::vector<double> times_;
};

// Ratios are relative to the first row, here and in the paper.
void print_table(const std::vector<std::unique_ptr<Run>>& runs) {
  std::printf(
      "| variant | parameters | peak memory, MB | ratio | paper | s/step | ratio | paper |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|\n");
  const Run& first = *runs.front();
  const auto epoch = [](const Variant& v) { return v.hours / v.epochs; };
  for (const auto& run : runs)
    std::printf("| %s | %lld | %.1f | %.2f | %.2f | %.3f | %.2f | %.2f |\n", run->paper.name,
                static_cast<long long>(run->parameters()), run->peak() / 1e6,
                run->peak() / first.peak(), run->paper.gigabytes / first.paper.gigabytes,
                run->seconds(), run->seconds() / first.seconds(),
                epoch(run->paper) / epoch(first.paper));
}

int run(const Settings& o) {
  set_num_threads(o.threads);
  std::vector<std::unique_ptr<Run>> runs;
  for (const Variant& variant : table_5) {
    const auto& chosen = o.variants;
    if (chosen.empty() || std::find(chosen.begin(), chosen.end(), variant.name) != chosen.end())
      runs.push_back(std::make_unique<Run>(variant, o));
  }
  for (int round = 0; round < o.rounds; ++round)
    for (const auto& run : runs) run->step();
  std::printf(
      "stretto: %lld layers, L = %lld, B = %lld, R = %lld, %lld sines, %lld taps (ungated: %lld), "
      "f32, %d threads, %s; medians of %d rounds\n\n",
      static_cast<long long>(o.layers), static_cast<long long>(o.length),
      static_cast<long long>(o.batch), static_cast<long long>(o.realizations),
      static_cast<long long>(o.sines), static_cast<long long>(o.taps),
      static_cast<long long>(o.ungated_taps), num_threads(), cpu_description().c_str(), o.rounds);
  print_table(runs);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings o;
  std::vector<std::string> names;
  for (const Variant& variant : table_5) names.push_back(variant.name);
  return examples::run_program(
      argc, argv, "spe_cost", "Measures the cost of SPE in a training step (the paper's Table 5).",
      [&](CLI::App& app) {
        app.add_option("--layers", o.layers)->check(CLI::PositiveNumber);
        app.add_option("--length", o.length)->check(CLI::PositiveNumber);
        app.add_option("--batch", o.batch)->check(CLI::PositiveNumber);
        app.add_option("--realizations", o.realizations, "R");
        app.add_option("--sines", o.sines, "K");
        app.add_option("--taps", o.taps, "Filter length of conv");
        app.add_option("--ungated-taps", o.ungated_taps, "Filter length of conv-ungated");
        app.add_option("--rounds", o.rounds)->check(CLI::PositiveNumber);
        app.add_option("--threads", o.threads)->check(CLI::PositiveNumber);
        app.add_option("--variants", o.variants,
                       "Comma-separated list of ape, sine, sine-ungated, conv, conv-ungated; "
                       "ratios are relative to the first")
            ->delimiter(',')
            ->check(CLI::IsMember(names));
      },
      [&] { return run(o); });
}
