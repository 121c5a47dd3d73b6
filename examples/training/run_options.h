// The options of every training program, and the sources of its settings (settings.h): the preset,
// overridden by the command line, or the checkpoint of a resumed run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "examples/common/options.h"
#include "examples/common/settings.h"
#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// The options of every program that are not stored in a checkpoint.
struct RunOptions {
  std::string out;
  std::string resume;
  bool overwrite = false;  ///< replaces an earlier run, or files not made by a run, in `out`
  double minutes = 4;
  int64_t threads = 0;
  int64_t micro_batches = 0;
  bool shard_optimizer = false;
  int64_t sequence_parallel = 1;
  std::string device = "cpu";
  bool cuda_graph = false;
  std::string matmul_precision = "highest";  ///< Float32MatmulPrecision
  int64_t save_every = 100;
  int64_t evaluate_every = 0;
  bool anomaly = false;
  bool parameters = false;   ///< no training: print the number of parameters and exit
  bool report_only = false;  ///< no training: only prepare(), begin() and report()
  std::function<bool(const std::string&)> given;  ///< true if an option is on the command line
  const OptionList* all = nullptr;                ///< every option of the program
  /// The file of `resume`, opened by the first call: settings and weights are those of one
  /// checkpoint, even if another run replaces it meanwhile. Throws UsageError.
  const nn::SafetensorsFile& checkpoint();
  std::shared_ptr<const nn::SafetensorsFile> opened;  ///< of checkpoint(); reset after loading

  /// Declares all options except --sequence-parallel and --evaluate.
  void declare(OptionList& options);
  /// Declares --sequence-parallel, for programs whose models can split sequences over processes.
  void declare_sequence_parallel(OptionList& options);
};

/// Throws UsageError if a setting on the command line differs from the saved setting of the run
/// whose checkpoint is at `path`.
void check_same_settings(const nn::Metadata& saved, const nn::Metadata& asked,
                         const RunOptions& options, const std::string& path);

/// Sets the settings that are not on the command line to those of `preset`; with --minutes,
/// steps are set to 0.
template <class Settings>
void take_preset(Settings& settings, nn::Metadata preset, const RunOptions& run) {
  if (run.given("--minutes")) preset["steps"] = "0";
  Settings::each(settings, [&](const char* name, auto& value, const auto&...) {
    const auto preferred = preset.find(name);
    if (preferred != preset.end() && !run.given(option_of(name)))
      read_text(preferred->second, value);
  });
}

/// Returns the settings of the checkpoint of --resume. Throws UsageError if they cannot be read.
template <class Settings>
Settings saved_settings(RunOptions& run, const std::string& program) {
  const nn::Metadata metadata =
      as_usage([&] { return nn::load_training_state(run.checkpoint()); }).metadata;
  return settings_from_metadata<Settings>(metadata, run.resume, program);
}

/// Returns the saved settings with --steps of the command line: a resumed run may take more or
/// fewer steps. Throws UsageError if the run of run.resume has already taken more.
template <class Settings>
Settings with_steps(Settings saved, const Settings& asked, RunOptions& run) {
  if (run.report_only || !run.given("--steps") || saved.steps == 0 || asked.steps == 0)
    return saved;
  const int64_t done = as_usage([&] { return nn::load_training_state(run.checkpoint()); }).step;
  require(asked.steps >= done, "--steps " + as_text(asked.steps) + ": the run of " + run.resume +
                                   " has already taken " + as_text(done));
  saved.steps = asked.steps;
  return saved;
}

/// Replaces `settings` by the saved ones, except for --steps. Throws UsageError if a setting on the
/// command line (with `all`: any setting) differs from the saved one.
template <class Settings>
void take_saved(Settings& settings, Settings saved, RunOptions run, bool all = false) {
  saved = with_steps(saved, settings, run);
  if (all) run.given = [](const std::string&) { return true; };
  check_same_settings(settings_to_metadata(saved), settings_to_metadata(settings), run, run.resume);
  settings = saved;
}

}  // namespace stretto::examples
