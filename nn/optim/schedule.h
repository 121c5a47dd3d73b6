// Learning rate schedules: structs of settings that compute the rate of a step.
//
//     const nn::Schedule schedule = nn::WarmupCosine{.peak = 3e-4, .warmup = 100, .steps = 5000};
//     optimizer.set_learning_rate(schedule.at(step));
//
// Steps are counted from 1, as t in the formulas; at step 0 the rate of a schedule with a warm-up
// is 0. `progress` is the fraction of the run that is done, 0 to 1.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

namespace stretto::nn {

/// A constant rate.
struct ConstantRate {
  double lr = 1e-3;  ///< The rate.
  /// Returns the rate.
  double at(int64_t step, double progress = 0) const;
};

/// Linear from 0 to `peak` at step `warmup`, then half a cosine down to `floor` at step `steps`,
/// then constant (Loshchilov & Hutter, 2017, without restarts). With steps = 0 the cosine depends
/// on `progress`, the fraction of a run that is limited by steps or by time, and the resulting
/// rate is multiplied by min(1, step / max(1, warmup)). If such a run is resumed with another
/// number of steps, the curve changes.
struct WarmupCosine {
  double peak = 1e-3;  ///< Highest rate.
  int64_t warmup = 0;  ///< Number of warm-up steps.
  int64_t steps = 0;   ///< Step at which `floor` is reached; 0: use `progress`.
  double floor = 0;    ///< Final rate.
  /// Returns the rate of a step.
  double at(int64_t step, double progress = 0) const;
};

/// Linear from 0 to `peak` at step `warmup`, then constant, then linear to `floor` over the last
/// `decay` of the run (WSD: Hu et al., "MiniCPM", 2024; linear as in Hägele et al., 2024). With
/// steps = 0 the run is measured by `progress`, as in WarmupCosine. A run that was stopped before
/// the decay can be resumed with more steps: all rates before the decay are the same.
struct WarmupStableDecay {
  double peak = 1e-3;  ///< Highest rate.
  int64_t warmup = 0;  ///< Number of warm-up steps.
  int64_t steps = 0;   ///< Step at which `floor` is reached; 0: use `progress`.
  double decay = 0.2;  ///< Fraction of the run in which the rate falls, 0 to 1.
  double floor = 0;    ///< Final rate.
  /// Returns the rate of a step.
  double at(int64_t step, double progress = 0) const;
};

/// factor · d_model^−½ · min(t^−½, t · warmup^−3/2) (Vaswani et al., 2017, eq. 3): linear up to
/// step `warmup`, then proportional to 1/√t.
struct InverseSqrt {
  double factor = 1;      ///< Factor by which the rate is multiplied.
  int64_t d_model = 512;  ///< Width of the model.
  int64_t warmup = 4000;  ///< Number of warm-up steps, at least 1.
  /// Returns the rate of a step.
  double at(int64_t step, double progress = 0) const;
  /// Returns the schedule whose highest rate, at step `warmup`, is `peak`.
  static InverseSqrt with_peak(double peak, int64_t warmup);
};

/// Any of these schedules, or a function of step and progress.
struct Schedule : std::variant<ConstantRate, WarmupCosine, WarmupStableDecay, InverseSqrt,
                               std::function<double(int64_t, double)>> {
  using variant::variant;
  /// Returns the rate of a step.
  double at(int64_t step, double progress = 0) const;
  /// Returns the type and its settings without `steps`: "WarmupCosine(peak 0.001, …)"; "a function".
  std::string text() const;
};

}  // namespace stretto::nn
