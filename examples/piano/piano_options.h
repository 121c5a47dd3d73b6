// The command line of train_music.
#pragma once

#include <string>

#include "examples/piano/piano_settings.h"
#include "examples/piano/piano_writing.h"
#include "examples/training/training_run.h"

namespace stretto::examples {

struct PianoOptions {
  PianoSettings settings;
  RunOptions run{.out = "out/music"};
  std::string preset = "small";
  std::string data;
  std::string split;
  int64_t every = 10;
  int64_t validation_windows = 32;
  int64_t eval_length = 0;
  int64_t eval_windows = 200;
  int64_t eval_batch = 4;
  std::string picture_layers;
  int64_t picture_heads = 4;
  int64_t picture_length = 256;
  int64_t generate = 1024;
  PianoWritingOptions writing;
};

void describe(CLI::App& app, PianoOptions& options);

/// The settings: the preset, over it the command line. Of a resumed run, its own ones, which must
/// be those that are given, with --preset all of that. Throws UsageError for these, and for all
/// options that cannot be meant.
void resolve(PianoOptions& options);

}  // namespace stretto::examples
