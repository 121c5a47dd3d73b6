// The options that every training program has, and where its settings (settings.h) come from: a
// preset, over it the command line; of a resumed run, its checkpoint.
#pragma once

#include <functional>
#include <string>

#include "examples/common/options.h"
#include "examples/common/settings.h"
#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// What a checkpoint does not keep and every program has.
struct RunOptions {
  std::string out;
  std::string resume;
  bool overwrite = false;  // an earlier run, or files of other origin, in `out`
  double minutes = 4;
  int64_t threads = 0;
  int64_t micro_batches = 0;
  bool shard_optimizer = false;
  int64_t sequence_parallel = 1;
  std::string device = "cpu";
  bool cuda_graph = false;
  std::string matmul_precision = "highest";  // Float32MatmulPrecision
  int64_t save_every = 100;
  int64_t evaluate_every = 0;
  bool anomaly = false;
  bool parameters = false;   // no training: the program prints how many its model has, and stops
  bool report_only = false;  // no training: prepare(), begin() and report()
  std::function<bool(const std::string&)> given;  // whether an option is on the command line
  const OptionList* all = nullptr;                // every option of the program

  /// All but the next, and --evaluate.
  void declare(OptionList& options);
  /// Of programs whose models take pieces of sequences.
  void declare_sequence_parallel(OptionList& options);
};

/// Of settings as texts, those on the command line must be those of the run of `path`.
void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path);

/// Settings that are not on the command line become those that `preset` has; with --minutes, steps
/// too, which become none.
template <class Settings>
void take_preset(Settings& settings, nn::Metadata preset, const RunOptions& run) {
  if (run.given("--minutes")) preset["steps"] = "0";
  Settings::each(settings, [&](const char* name, auto& value, const auto&...) {
    const auto preferred = preset.find(name);
    if (preferred != preset.end() && !run.given(option_of(name)))
      read_text(preferred->second, value);
  });
}

/// The settings of a checkpoint. UsageError naming `path` where they cannot be read.
template <class Settings>
Settings saved_settings(const std::string& path, const std::string& program) {
  const nn::Metadata metadata = as_usage([&] { return nn::load_training_state(path); }).metadata;
  return settings_from_metadata<Settings>(metadata, path, program);
}

/// The saved settings, with the steps of the command line: a run may go on to more of them, or to
/// fewer. UsageError where the run of run.resume has taken more already.
template <class Settings>
Settings with_steps(Settings saved, const Settings& asked, const RunOptions& run) {
  if (run.report_only || !run.given("--steps") || saved.steps == 0 || asked.steps == 0)
    return saved;
  const int64_t done = as_usage([&] { return nn::load_training_state(run.resume); }).step;
  require(asked.steps >= done, "--steps " + as_text(asked.steps) + ": the run of " + run.resume +
                                   " has taken " + as_text(done) + " already");
  saved.steps = asked.steps;
  return saved;
}

/// `settings` become the saved ones, but for --steps. UsageError where one that is on the command
/// line, with `all` any of them, is another there.
template <class Settings>
void take_saved(Settings& settings, Settings saved, RunOptions run, bool all = false) {
  saved = with_steps(saved, settings, run);
  if (all) run.given = [](const std::string&) { return true; };
  check_same_settings(settings_to_notes(saved), settings_to_notes(settings), run, run.resume);
  settings = saved;
}

}  // namespace stretto::examples
