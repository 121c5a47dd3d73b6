// What fixes a run of train_music: the language, the model, the crops, the optimiser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/piano/crops.h"
#include "examples/piano/piano_tokens.h"
#include "examples/training/model_settings.h"
#include "nn/files/safetensors.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// With the same settings and data every step has the same bits, whatever the number of threads.
/// All of it is kept in the checkpoint.
struct PianoSettings : ModelSettings {
  PianoSettings()
      : ModelSettings{.attention = "performer-hyperbolic",
                      .redraw = 20,
                      .position = "sinusoid",
                      .out_of_range = "clip"} {}  // so that lags no crop had look like the farthest

  std::string tokens = "remi";  // piano_tokens()
  bool pedal = false;           // performance: notes last while the sustain pedal is down

  double init_std = 0;  // LanguageModel::Options

  int64_t length = 512;
  int64_t transpose = 6;
  int64_t stretch = 0;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("tokens", s.tokens, "remi or performance", known_to(piano_tokens));
    f("pedal", s.pedal, "performance: notes last while the sustain pedal is down", any_value);
    each_of_run(s, f);
    each_of_model(s, f);
    f("init_std", s.init_std, "Weights start with this deviation (0: each its own)",
      require_not_negative);
    f("length", s.length, "Tokens of a crop to learn from", between(1, 1 << 20));
    f("transpose", s.transpose, "Largest transposition of a crop, in semitones", between(0, 24));
    f("stretch", s.stretch, "performance: and played up to so many hundredths faster or slower",
      between(0, 50));
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
  }
  bool operator==(const PianoSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  const PianoTokens& language() const { return piano_tokens(tokens); }
  PianoCropOptions crops() const { return {batch, length, transpose, stretch}; }
  nn::LanguageModel::Options model() const;
  /// A training takes more bytes than this.
  double least_memory() const;
  /// Of twice the length, where tables end.
  nn::PositionSettings positions() const;
};

/// "small", which learns something on two cores in minutes, or "published", the Performer of
/// Liutkus et al. (2021) on pop piano: 24 layers, trained on 2048 tokens. Transposition and stretch
/// are those of the language, 6 semitones with remi, 3 and 5 % with performance; the published
/// learning rate, number of steps and taps those of the position.
PianoSettings piano_settings(const std::string& preset, const std::string& tokens,
                             const std::string& position);

}  // namespace stretto::examples
