// Settings shared by both programs for chorales.
#pragma once

#include <string>

#include "examples/training/model_settings.h"

namespace stretto::examples {

struct ChoraleModelSettings : ModelSettings {
  ChoraleModelSettings(int64_t n_layers, int64_t crop)
      : ModelSettings{.layers = n_layers}, length(crop) {
    learning_rate = 2e-3;
  }

  int64_t length;
  int64_t transpose = 5;
  double weight_decay = 0.01;

  template <class S, class F>
  static void each_of_chorales(S& s, F&& f, const std::string& length_help, int64_t least_length) {
    each_of_model(s, f);
    f("transpose", s.transpose, "Augmentation: largest transposition of a crop in semitones",
      between(0, 24));
    f("weight_decay", s.weight_decay, "Decoupled weight decay", require_not_negative);
    f("length", s.length, length_help, between(least_length, 1 << 20));
  }
  bool operator==(const ChoraleModelSettings&) const = default;
};

}  // namespace stretto::examples
