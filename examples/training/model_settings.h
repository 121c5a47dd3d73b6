// Settings that every training of a model has: their checks, options and names.
#pragma once

#include <cstdint>

#include "examples/common/settings.h"

namespace CLI {
class App;
}

namespace stretto::examples {

/// A program's settings begin with these, and may start with other values.
struct ModelSettings {
  int64_t layers = 4;
  int64_t d_model = 128;
  int64_t heads = 4;
  int64_t d_hidden = 512;
  double dropout = 0.1;
  int64_t batch = 8;
  double learning_rate = 1e-3;  // the highest
  int64_t warmup = 100;
  double clip = 1;
  int64_t steps = 0;  // 0: no number of steps was given; the schedule follows the clock
  uint64_t seed = 1;

  template <class S, class F>
  static void each_of_model(S& s, F&& f) {
    f("layers", s.layers);
    f("d_model", s.d_model);
    f("heads", s.heads);
    f("d_hidden", s.d_hidden);
    f("dropout", s.dropout);
    f("batch", s.batch);
    f("learning_rate", s.learning_rate);
    f("warmup", s.warmup);
    f("clip", s.clip);
    f("steps", s.steps);
    f("seed", s.seed);
  }
  bool operator==(const ModelSettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained; heads of d_model /
  /// heads numbers must come out even.
  void check_model(bool heads_of_d_model = true) const;
};

/// Declares all of them but --steps and --seed, which describe_steps_and_seed does.
void describe_model(CLI::App& app, ModelSettings& settings);

}  // namespace stretto::examples
