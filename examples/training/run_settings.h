// Where the settings of a run (settings.h) come from: a preset, over it the command line; of a
// resumed run, its checkpoint.
#pragma once

#include <string>

#include "examples/common/settings.h"
#include "examples/training/training_run.h"
#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// Settings that are not on the command line become those that `preset` has; with --minutes, steps
/// too, which become none.
template <class Settings>
void take_preset(Settings& settings, nn::Metadata preset, const RunOptions& run) {
  if (run.given("--minutes")) preset["steps"] = "0";
  Settings::each(settings, [&](const char* name, auto& value) {
    const auto preferred = preset.find(name);
    if (preferred != preset.end() && !run.given(option_of(name)))
      read_text(preferred->second, value);
  });
}

/// The settings of a checkpoint. UsageError naming `path` where they cannot be read.
template <class Settings>
Settings saved_settings(const std::string& path, const std::string& program) {
  const nn::Metadata notes = as_usage([&] { return nn::load_training_state(path); }).notes;
  return settings_from_notes<Settings>(notes, path, program);
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
