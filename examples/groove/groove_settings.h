// The settings of groove: data, model, optimizer.
#pragma once

#include <cstdint>
#include <string>

#include "examples/training/model_settings.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// All settings are stored in the checkpoint. With the same settings and data every step is
/// bit-identical, whatever the number of threads.
struct GrooveSettings : ModelSettings {
  GrooveSettings() : ModelSettings{.redraw = 40} { max_grad_norm = 0.5; }

  double held_out = 0.1;
  int64_t skip_bars = 0;  ///< at the start of every song
  bool augment = true;
  bool published_eos = false;

  bool published_model = false;

  int64_t length = 512;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("held_out", s.held_out, "Fraction of the files held out for validation", require_fraction);
    f("skip_bars", s.skip_bars, "Number of bars to skip at the start of every file",
      between(0, 1000));
    f("augment", s.augment,
      "Data augmentation (0 or 1): random harmony instrument, beginning, key and missing tracks",
      any_value);
    each_of_run(s, f);
    f("published_model", s.published_model,
      "The published model: post-norm, biases in all projections, small initial values", any_value);
    f("published_eos", s.published_eos, "Do not score end tokens, as in the published training",
      any_value);
    each_of_model(s, f);
    f("length", s.length, "Maximum sequence length in tokens", between(2, 1 << 20));
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
  }
  bool operator==(const GrooveSettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  void check() const;
  /// Returns a lower bound of the bytes that training takes.
  double least_memory() const;
  /// Returns the model's options. With `published_model` it is post-norm, all projections have
  /// biases, and initial values are small, as in nn::music_performer.
  nn::LanguageModel::Options model() const;
};

/// Returns the configuration of Liutkus et al. 2021 with absolute positions: 76,471,066 parameters;
/// with sine, 76,495,642. The published learning rate decayed to a twentieth, here it decays to a
/// hundredth; everything else is as published.
GrooveSettings published_groove();

}  // namespace stretto::examples
