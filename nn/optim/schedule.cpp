#include "nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace stretto::nn {

double ConstantRate::at(int64_t, double) const { return lr; }

double WarmupCosine::at(int64_t step, double progress) const {
  check(step >= 0 && warmup >= 0, "WarmupCosine", "step ", step, ", warmup ", warmup,
        "; both must be ≥ 0");
  if (steps == 0) {
    const double warm = std::min(1.0, double(step) / double(std::max<int64_t>(1, warmup)));
    const double wave = 0.5 + 0.5 * std::cos(std::numbers::pi * std::clamp(progress, 0.0, 1.0));
    return warm * (floor + (peak - floor) * wave);
  }
  if (step < warmup) return peak * double(step) / double(warmup);
  if (step >= steps) return floor;
  const double share = double(step - warmup) / double(steps - warmup);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * share));
}

double WarmupStableDecay::at(int64_t step, double progress) const {
  check(step >= 0 && warmup >= 0 && decay >= 0 && decay <= 1, "WarmupStableDecay", "step ", step,
        ", warmup ", warmup, ", decay ", decay,
        "; step and warmup must be ≥ 0, decay must be 0 to 1");
  const double done = steps == 0 ? progress : double(step) / double(steps);
  const double warm = warmup > 0 ? std::min(1.0, double(step) / double(warmup)) : 1;
  const double height = done >= 1 ? 0 : done <= 1 - decay ? 1 : (1 - done) / decay;
  return warm * (floor + (peak - floor) * height);
}

double InverseSqrt::at(int64_t step, double) const {
  check(step >= 0 && warmup >= 1 && d_model >= 1, "InverseSqrt", "step ", step, ", warmup ", warmup,
        ", d_model ", d_model, "; needs step ≥ 0 and the others ≥ 1");
  const double t = double(step), w = double(warmup);
  return factor / std::sqrt(double(d_model)) * std::min(1 / std::sqrt(t), t / (w * std::sqrt(w)));
}

InverseSqrt InverseSqrt::with_peak(double peak, int64_t warmup) {
  return {.factor = peak * std::sqrt(double(warmup)), .d_model = 1, .warmup = warmup};
}

double Schedule::at(int64_t step, double progress) const {
  const auto rate = [&](const auto& s) {
    if constexpr (requires { s(step, progress); })
      return s(step, progress);
    else
      return s.at(step, progress);
  };
  return std::visit(rate, static_cast<const variant&>(*this));
}

std::string Schedule::text() const {
  if (const auto* s = std::get_if<ConstantRate>(this)) return str("ConstantRate(lr ", s->lr, ")");
  if (const auto* s = std::get_if<WarmupCosine>(this))
    return str("WarmupCosine(peak ", s->peak, ", warmup ", s->warmup, ", floor ", s->floor, ")");
  if (const auto* s = std::get_if<WarmupStableDecay>(this))
    return str("WarmupStableDecay(peak ", s->peak, ", warmup ", s->warmup, ", decay ", s->decay,
               ", floor ", s->floor, ")");
  if (const auto* s = std::get_if<InverseSqrt>(this))
    return str("InverseSqrt(factor ", s->factor, ", d_model ", s->d_model, ", warmup ", s->warmup,
               ")");
  return "a function";
}

}  // namespace stretto::nn
