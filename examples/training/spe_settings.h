// Stochastic positions (Liutkus et al. 2021) by name: sine, conv, and both without gates.
#pragma once

#include <cstdint>
#include <string>

#include "examples/common/settings.h"
#include "nn/positions/spe.h"

namespace stretto::examples {

struct SpeSettings {
  int64_t realizations = 64;
  int64_t sines = 5;   // of each template of sine
  int64_t taps = 128;  // of the filters of conv

  template <class S, class F>
  static void each_spe(S& s, F&& f) {
    f("realizations", s.realizations);
    f("sines", s.sines);
    f("taps", s.taps);
  }
  bool operator==(const SpeSettings&) const = default;

  /// Throws UsageError for a number that is not 1 to `most`.
  void check_spe(int64_t most) const {
    each_spe(*this, [&](const char* name, int64_t value) {
      require_range(option_of(name), value, 1, most);
    });
  }
};

/// Whether a position is a stochastic one: sine, sine-ungated, conv and conv-ungated.
inline bool is_stochastic(const std::string& position) {
  return position.starts_with("sine") || position.starts_with("conv");
}

/// What layers share may differ between sine and conv.
inline nn::MakePosition spe_position(const std::string& name, const SpeSettings& s,
                                     nn::SpeShare sine, nn::SpeShare conv) {
  const bool gated = !name.ends_with("-ungated");
  if (name.starts_with("sine"))
    return nn::sine_spe(
        {.realizations = s.realizations, .sines = s.sines, .gated = gated, .shared = sine});
  return nn::conv_spe(
      {.realizations = s.realizations, .taps = {s.taps}, .gated = gated, .shared = conv});
}

}  // namespace stretto::examples
