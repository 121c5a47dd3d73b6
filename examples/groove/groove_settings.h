// What fixes a run of groove: the data, the model, the optimiser.
#pragma once

#include <cstdint>
#include <string>

#include "examples/training/model_settings.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// With the same settings and data every step has the same bits, whatever the number of threads.
/// All of it is kept in the checkpoint.
struct GrooveSettings : ModelSettings {
  GrooveSettings() : ModelSettings{.redraw = 40, .max_grad_norm = 0.5} {}

  double held_out = 0.1;
  int64_t skip_bars = 0;  // at the start of every song
  bool augment = true;
  bool published_eos = false;

  bool published_model = false;

  int64_t length = 512;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("held_out", s.held_out, "Share of the files to judge by", require_fraction);
    f("skip_bars", s.skip_bars, "Leave out so many bars at the start of every file",
      between(0, 1000));
    f("augment", s.augment,
      "1: other harmony instruments, beginnings, keys and missing tracks; 0: not", any_value);
    each_of_run(s, f);
    f("published_model", s.published_model,
      "Norms after the layers, biases everywhere, small first values", any_value);
    f("published_eos", s.published_eos, "Do not learn where songs end, as the published models",
      any_value);
    each_of_model(s, f);
    f("length", s.length, "Sequences are cut to so many tokens", between(2, 1 << 20));
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
  }
  bool operator==(const GrooveSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  /// A training takes more bytes than this.
  double least_memory() const;
  /// With `published_model` norms stand after the layers, all projections have biases, and values
  /// start small, as in nn::music_performer.
  nn::LanguageModel::Options model() const;
};

/// The configuration of Liutkus et al. 2021 with absolute positions: 76,471,066 parameters, and
/// with sine 76,495,642. The published learning rate went to a twentieth, here it goes to a
/// hundredth; the rest is theirs.
GrooveSettings published_groove();

}  // namespace stretto::examples
