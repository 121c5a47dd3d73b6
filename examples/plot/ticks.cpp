#include "examples/plot/ticks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace stretto::examples {
namespace {

std::string fixed(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", decimals, value);
  return buffer;
}

int decimals_of(double step) { return std::max(0, int(-std::floor(std::log10(step) + 1e-9))); }

}  // namespace

Ticks nice_ticks(double low, double high, int most, double least_step) {
  double power = std::pow(10.0, std::floor(std::log10((high - low) / most)));
  for (;; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = factor * power;
      const double first = std::ceil(low / step - 1e-9);
      const double last = std::floor(high / step + 1e-9);
      if (last - first + 1 > most || step < least_step) continue;
      Ticks ticks{step, {}};
      for (int i = 0; i <= int(last - first); ++i) {
        const double at = first + i;
        ticks.values.push_back(at == 0 ? 0.0 : at * step);
      }
      return ticks;
    }
  }
}

std::string tick_label(double value, double step) {
  if (step < 1e-6 || step >= 1e9) {
    if (value == 0) return "0";
    const double digits =
        std::floor(std::log10(std::abs(value)) + 1e-9) - std::floor(std::log10(step) + 1e-9) + 1;
    char buffer[64];
    std::snprintf(buffer, sizeof(buffer), "%.*g", std::clamp(int(digits), 1, 17), value);
    std::string text = buffer;  // "3e-09", or "1.00000003"
    const size_t e = text.find('e');
    if (e == text.npos) return text;
    return text.substr(0, e + 1) + std::to_string(std::stoi(text.substr(e + 1)));
  }
  if (value == 0) return fixed(0, decimals_of(step));
  if (step >= 100000) return fixed(value / 1e6, decimals_of(step / 1e6)) + "M";
  if (step >= 1000) return fixed(value / 1e3, decimals_of(step / 1e3)) + "k";
  return fixed(value, decimals_of(step));
}

}  // namespace stretto::examples
