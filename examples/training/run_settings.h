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

/// `settings` become the saved ones. UsageError where one that is on the command line, with `all`
/// any of them, is another there.
template <class Settings>
void take_saved(Settings& settings, const Settings& saved, RunOptions run, bool all = false) {
  if (all) run.given = [](const std::string&) { return true; };
  check_same_settings(settings_to_notes(saved), settings_to_notes(settings), run, run.resume);
  settings = saved;
}

}  // namespace stretto::examples
