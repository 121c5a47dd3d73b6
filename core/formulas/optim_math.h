// Settings of optimizer steps, and the update rules of one element, shared by CPU and GPU. T is the
// type in which a step is computed.
#pragma once

#include <functional>

#include "../math.h"
#include "../tensor.h"

namespace stretto {

struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov;
  bool first;  // first step of this parameter: the momentum is set to the gradient
};

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;                   // AdamW: weight decay is not part of the gradient
  double correction1, correction2;  // 1 − β₁ᵗ and √(1 − β₂ᵗ)
};

/// One parameter of an SGD step. `momentum` is undefined without momentum, and `master` is
/// undefined unless the weight is bf16.
struct SgdTask {
  Tensor weight, gradient, master, momentum;
  SgdStep step;
  std::function<SgdStep()> again = {};  // under CUDA graphs: returns the settings for each replay
};

/// One parameter of an Adam step. `v_max` is undefined without amsgrad.
struct AdamTask {
  Tensor weight, gradient, master, m, v, v_max;
  AdamStep step;
  std::function<AdamStep()> again = {};  // under CUDA graphs: as in SgdTask
};

/// g ← g + λ·w, b ← μ·b + (1 − dampening)·g (b = g at first), w ← w − lr·b, or with Nesterov's
/// momentum w ← w − lr·(g + μ·b).
template <class T>
struct SgdRule {
  T lr, mu, share, decay;
  bool nesterov, first;

  SgdRule() = default;
  explicit SgdRule(const SgdStep& s)
      : lr(T(s.lr)),
        mu(T(s.momentum)),
        share(T(1 - s.dampening)),
        decay(T(s.weight_decay)),
        nesterov(s.nesterov),
        first(s.first) {}

  STRETTO_HD T plain(T w, T g) const { return w - lr * (g + decay * w); }
  STRETTO_HD T with_momentum(T w, T gradient, T& b) const {
    const T g = gradient + decay * w;
    b = first ? g : mu * b + share * g;
    return w - lr * (nesterov ? g + mu * b : b);
  }
};

/// m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², w ← w − lr·m̂ / (√v̂ + eps); amsgrad uses the largest
/// v so far instead of v.
template <class T>
struct AdamRule {
  T shrink, decay, rate, correction, eps, share1, beta2, share2;

  AdamRule() = default;
  explicit AdamRule(const AdamStep& s)
      : shrink(T(s.decoupled ? 1 - s.lr * s.weight_decay : 1)),
        decay(T(s.decoupled ? 0 : s.weight_decay)),
        rate(T(s.lr / s.correction1)),
        correction(T(s.correction2)),
        eps(T(s.eps)),
        share1(T(1 - s.beta1)),
        beta2(T(s.beta2)),
        share2(T(1 - s.beta2)) {}

  STRETTO_HD void moments(T w, T gradient, T& m, T& v) const {
    const T g = gradient + decay * w;
    m = m + share1 * (g - m);
    v = beta2 * v + share2 * g * g;
  }
  STRETTO_HD T stepped(T w, T m, T second) const {
    return shrink * w - rate * m / (math::sqrt(second) / correction + eps);
  }
};

}  // namespace stretto
