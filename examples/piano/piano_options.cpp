#include "examples/piano/piano_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "examples/training/run_settings.h"

namespace stretto::examples {
namespace {

void take_settings(PianoOptions& o) {
  std::optional<PianoSettings> saved;
  if (!o.run.resume.empty()) {
    saved = saved_settings<PianoSettings>(o.run.resume, "train_music");
    if (!o.run.given("--tokens")) o.settings.tokens = saved->tokens;
    if (!o.run.given("--position")) o.settings.position = saved->position;
  }
  take_preset(o.settings,
              settings_to_notes(piano_settings(o.preset, o.settings.tokens, o.settings.position)),
              o.run);
  if (saved) take_saved(o.settings, *saved, o.run, o.run.given("--preset"));
}

void check(PianoOptions& o) {
  const PianoSettings& s = o.settings;
  s.check();
  require(o.split.empty() || !o.data.empty(), "--split: goes with --data DIR");
  require_range("--every", o.every, 2, INT64_MAX);
  require_range("--validation-windows", o.validation_windows, 0, INT64_MAX);
  require_range("--eval-length", o.eval_length, 0, 1 << 20);
  if (o.eval_length == 0) o.eval_length = s.length + s.length / 2;
  require_range("--eval-windows", o.eval_windows, 0, INT64_MAX);
  require_range("--eval-batch", o.eval_batch, 1, 1 << 20);
  for (const int64_t layer : read_list("--picture-layers", o.picture_layers))
    require_range("--picture-layers", layer, 1, s.layers);
  require_range("--picture-heads", o.picture_heads, 1, 64);
  require_range("--picture-length", o.picture_length, 1, 2048);
  o.picture_length = std::min(o.picture_length, o.eval_length);
  require_range("--generate", o.generate, 0, 65536);
  require_range("--bars", o.writing.bars, 0, INT64_MAX);
  const double t = o.writing.temperature, p = o.writing.top_p;
  require_not_negative("--temperature", t);
  require_number("--top-p", p, p > 0 && p <= 1, "above 0 and at most 1");
  s.require_room(s.positions(), o.eval_length, "--eval-length " + as_text(o.eval_length));
  if (!s.has_position("learned")) return;  // bert's table goes along with the last ones
  if (!o.run.given("--generate")) o.generate = std::min(o.generate, s.room(s.positions()));
  s.require_room(s.positions(), o.generate, "--generate " + as_text(o.generate));
}

}  // namespace

void describe(CLI::App& app, PianoOptions& o) {
  PianoSettings& s = o.settings;
  app.add_option("--data", o.data, "Folder of MIDI files; without it pieces are generated")
      ->option_text("DIR");
  app.add_option(
         "--split", o.split,
         "Which file is for what: tab-separated columns file and split (train, valid, test)")
      ->option_text("FILE");
  app.add_option("--every", o.every,
                 "Without --split: of so many files one is to validate by, and one to test by");
  app.add_option("--tokens", s.tokens, "remi or performance");
  app.add_flag("--pedal", s.pedal, "performance: notes last while the sustain pedal is down");
  app.add_option("--preset", o.preset, "small, or published: for options that are not given");
  describe(app, o.run);
  describe_sequence_parallel(app, o.run);
  describe_steps_and_seed(app, s.steps, s.seed);

  describe_model(app, s, {s.positions()});
  app.get_option("--batch")->description("Crops of a step");
  app.add_option("--init-std", s.init_std, "Weights start with this deviation (0: each its own)");
  app.add_option("--length", s.length, "Tokens of a crop to learn from");
  app.add_option("--transpose", s.transpose, "Crops are moved by up to so many semitones");
  app.add_option("--stretch", s.stretch,
                 "performance: and played up to so many hundredths faster or slower");
  app.add_option("--weight-decay", s.weight_decay, "Decoupled weight decay");

  app.add_flag("--evaluate", o.run.report_only, "Do not train: score and write with --resume");
  app.add_option("--validation-windows", o.validation_windows,
                 "Judge by so many windows while training (0: all)");
  app.add_option("--eval-length", o.eval_length,
                 "Tokens of a window at the end (0: 1.5 times --length)");
  app.add_option("--eval-windows", o.eval_windows, "Judge by so many at the end (0: all)");
  app.add_option("--eval-batch", o.eval_batch, "So many windows at a time");
  app.add_option("--picture-layers", o.picture_layers,
                 "Layers whose attention is drawn, with commas (none: the first and the last)");
  app.add_option("--picture-heads", o.picture_heads, "So many heads of each");
  app.add_option("--picture-length", o.picture_length, "Over so many tokens");
  app.add_option("--generate", o.generate, "Tokens of music to write (0: none)");
  app.add_option("--bars", o.writing.bars, "remi: it ends with so many bars (0: any number)");
  app.add_option("--temperature", o.writing.temperature, "Of the drawing of tokens");
  app.add_option("--top-p", o.writing.top_p,
                 "Draw among the likeliest tokens that reach this share");
  app.add_option("--grammar", o.writing.grammar,
                 "1: beats never go backwards, only what sounds is let go, no early end; 0: any");
}

void resolve(PianoOptions& options) {
  take_settings(options);
  check(options);
}

}  // namespace stretto::examples
