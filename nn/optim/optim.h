// Optimisers: rules that change parameters by their gradients.
//
//     nn::AdamW optimizer(model.parameters(), {.lr = 3e-4});
//     for (int64_t step = 1; step <= steps; ++step) {
//       optimizer.set_learning_rate(schedule.at(step));
//       optimizer.zero_grad();
//       loss(batch()).backward();
//       nn::clip_grad_norm(model.parameters(), 1.0);
//       optimizer.step();
//     }
//
// A step is one fused pass over each parameter, in f64 for f64 parameters, else in f32. bf16
// parameters have f32 master copies here, as an update is often smaller than half a bf16 step. What
// is kept between steps lies beside its parameter, on the same device. The steps themselves are ops
// (ops/optim.h).
#pragma once

#include <optional>
#include <vector>

#include "../../ops/optim.h"
#include "../module.h"

namespace stretto::nn {

/// Parameters with settings of their own.
struct ParameterGroup {
  Tensors parameters;
  double lr_scale = 1;                      // times the optimiser's learning rate
  std::optional<double> weight_decay = {};  // in place of the optimiser's
};

/// What an optimiser keeps of one parameter between steps. `tensors` have the parameter's shape;
/// the master copy of a bf16 parameter is one of them. Before the first step there are none.
struct ParameterState {
  int64_t steps = 0;
  std::vector<NamedTensor> tensors;
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates all parameters that have a gradient; the others are left alone. Where it throws, for
  /// want of memory or for a gradient that does not fit, none has taken the step.
  void step();
  /// Drops the gradients of all parameters.
  void zero_grad();

  double learning_rate() const { return lr_; }
  void set_learning_rate(double lr);

  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// All parameters, group by group; `state` has their order.
  Tensors parameters() const;

  /// From now on steps change these elements alone, one stretch of each parameter, and the state is
  /// that of them, in one dimension; without stretches, of everything, for which load_state() must
  /// follow. load_state() always takes the state of everything.
  void keep_ranges(std::vector<ElementRange> ranges);
  /// Handles to the state, not copies: clone what has to outlive the next step.
  const std::vector<ParameterState>& state() const { return state_; }
  /// Throws, naming `op`, unless `load_state` would take this.
  void check_state(const std::vector<ParameterState>& state) const;
  /// Continues from copies of these tensors; all are checked before any is taken.
  void load_state(const std::vector<ParameterState>& state);

  /// "SGD", "Adam", "AdamW".
  virtual const char* name() const = 0;
  /// The tensors kept per parameter, without the master copy.
  virtual std::vector<std::string> slots() const = 0;
  /// `slots`, and "master" for bf16: what the state of parameter i has after a step.
  std::vector<std::string> state_names(size_t i) const;

 protected:
  Optimizer(std::vector<ParameterGroup> groups, double lr, double weight_decay);

  /// One parameter's step: contiguous tensors on its device.
  struct Update {
    Tensor weight, gradient;
    Tensor master;  // undefined unless the weight is bf16
    Tensors slots;  // zeros before the first step
    int64_t step;   // this one's number, from 1
    double lr, lr_scale, weight_decay;
  };
  /// All of them, or where it throws none; the weights and state are changed in place.
  virtual void update(const std::vector<Update>& all) const = 0;

 private:
  bool skips(size_t i, const Tensor& parameter) const;
  Tensor kept_of(size_t i, const Tensor& whole) const;
  void drop_others();
  struct Prepared;
  Prepared prepared(size_t i, const Tensor& parameter, const ParameterGroup& group,
                    Update& update) const;

  std::vector<ParameterGroup> groups_;
  std::vector<ParameterState> state_;
  std::vector<ElementRange> ranges_;  // of each parameter, or none: of everything
  double lr_, weight_decay_;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  double dampening = 0;
  bool nesterov = false;  // needs momentum and no dampening
};

/// Stochastic gradient descent, as in PyTorch: g ← g + λ·w, b ← μ·b + (1 − dampening)·g (b = g at
/// first), w ← w − lr·b, or with Nesterov's momentum w ← w − lr·(g + μ·b).
class SGD : public Optimizer {
 public:
  using Options = SGDOptions;
  SGD(Tensors parameters, Options options);
  SGD(std::vector<ParameterGroup> groups, Options options);

  const char* name() const override { return "SGD"; }
  std::vector<std::string> slots() const override;
  const Options options;

 private:
  void update(const std::vector<Update>& all) const override;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
};

/// Adam (Kingma & Ba, 2015, algorithm 1): m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g²,
/// w ← w − lr·m̂ / (√v̂ + eps) with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ). Weight decay is added to
/// the gradient: g ← g + λ·w. amsgrad takes the largest v so far in place of v (Reddi et al.,
/// 2018).
class Adam : public Optimizer {
 public:
  using Options = AdamOptions;
  Adam(Tensors parameters, Options options);
  Adam(std::vector<ParameterGroup> groups, Options options);

  const char* name() const override { return "Adam"; }
  std::vector<std::string> slots() const override;
  const Options options;

 protected:
  Adam(std::vector<ParameterGroup> groups, Options options, bool decoupled);

 private:
  void update(const std::vector<Update>& all) const override;
  const bool decoupled_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
};

/// Adam with decoupled weight decay: w ← (1 − lr·λ)·w before the step (Loshchilov & Hutter, 2019).
class AdamW : public Adam {
 public:
  using Options = AdamWOptions;
  AdamW(Tensors parameters, Options options);
  AdamW(std::vector<ParameterGroup> groups, Options options);
  const char* name() const override { return "AdamW"; }
};

/// Scales all gradients so that their common L2 norm is at most `max_norm`; returns the norm
/// before, summed in f64 in a fixed order: f64, without dimensions, on the device of the gradients,
/// where the host does not wait for it. Where it is NaN or infinite the gradients are left alone.
Tensor clip_grad_norm(const Tensors& parameters, double max_norm);

}  // namespace stretto::nn
