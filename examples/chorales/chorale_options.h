// Settings that every training on chorales has: their options, their checks, their names.
#pragma once

#include "examples/training/model_settings.h"

namespace stretto::examples {

struct ChoraleModelSettings : ModelSettings {
  ChoraleModelSettings(int64_t n_layers, int64_t crop)
      : ModelSettings{.layers = n_layers, .learning_rate = 2e-3}, length(crop) {}

  int64_t length;
  int64_t transpose = 5;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each_of_chorales(S& s, F&& f) {
    each_of_model(s, f);
    f("length", s.length);
    f("transpose", s.transpose);
    f("weight_decay", s.weight_decay);
  }
  bool operator==(const ChoraleModelSettings&) const = default;

  /// As check_model().
  void check_chorales(int64_t least_length) const {
    check_model();
    require_range("--length", length, least_length, 1 << 20);
    require_range("--transpose", transpose, 0, 24);
    require_not_negative("--weight-decay", weight_decay);
  }
};

/// Declares all but the length; that, --steps and --seed are the program's. App is CLI::App, which
/// only a program includes.
template <class App>
void describe_chorales(App& app, ChoraleModelSettings& s,
                       const std::vector<nn::PositionSettings>& attentions) {
  describe_model(app, s, attentions);
  app.get_option("--batch")->description("Crops per step");
  app.add_option("--transpose", s.transpose, "Crops are moved by up to so many semitones");
  app.add_option("--weight-decay", s.weight_decay, "Decoupled weight decay");
}

}  // namespace stretto::examples
