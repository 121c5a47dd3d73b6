// Learning rates over the course of training: plain values with a function of the step.
//
//     const nn::Schedule schedule = nn::WarmupCosine{.peak = 3e-4, .warmup = 100, .steps = 5000};
//     optimizer.set_learning_rate(schedule.at(step));
//
// Steps count updates from 1, as t does in the formulas; at 0 a warm-up is still at 0. `progress`
// is the share of the run that is done, 0 to 1, for what follows that.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>

namespace stretto::nn {

/// The same rate always.
struct ConstantRate {
  double lr = 1e-3;
  double at(int64_t step, double progress = 0) const;
};

/// Linear from 0 to `peak` at step `warmup`, then half a cosine down to `floor` at step `steps`,
/// where it stays (Loshchilov & Hutter, 2017, without restarts). With steps = 0 the cosine follows
/// `progress` from the start, and the warm-up scales it: for a run that goes by the clock.
struct WarmupCosine {
  double peak = 1e-3;
  int64_t warmup = 0;
  int64_t steps = 0;
  double floor = 0;
  double at(int64_t step, double progress = 0) const;
};

/// factor · d_model^−½ · min(t^−½, t · warmup^−3/2) (Vaswani et al., 2017, eq. 3): linear up to
/// step `warmup`, then as 1/√t.
struct InverseSqrt {
  double factor = 1;
  int64_t d_model = 512;
  int64_t warmup = 4000;
  double at(int64_t step, double progress = 0) const;
  /// The same curve, given by its highest rate.
  static InverseSqrt with_peak(double peak, int64_t warmup);
};

/// Any of these, or a function of step and progress.
struct Schedule : std::variant<ConstantRate, WarmupCosine, InverseSqrt,
                               std::function<double(int64_t, double)>> {
  using variant::variant;
  double at(int64_t step, double progress = 0) const;
};

}  // namespace stretto::nn
