// Optimizers: SGD, Adam and AdamW, and gradient clipping. Muon is in muon.h.
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
// A step is one fused pass over each parameter, in f64 for f64 parameters, otherwise in f32. bf16
// parameters have f32 master weights, because an update is often smaller than half a bf16 step. The
// state is on the same device as its parameter. The updates themselves are ops (ops/optim.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "../../ops/optim.h"
#include "../module.h"

namespace stretto::nn {

/// Parameters with their own settings.
struct ParameterGroup {
  Tensors parameters = {};  ///< Leaves of floating dtype; may be frozen.
  double lr_scale = 1;      ///< Multiplies the optimizer's learning rate.
  /// If set, the learning rate of a parameter's update number t = 1, 2, … is also multiplied by
  /// lr_factor(t): a schedule of the group, for example a later warm-up.
  std::function<double(int64_t t)> lr_factor = {};
  /// Unset: the weight decay of the optimizer, which Optimizer::groups() has filled in.
  std::optional<double> weight_decay = {};
  bool use_muon = true;  ///< False: Muon updates 2-d weights of the group by AdamW, too.
};

/// The optimizer state of one parameter.
struct ParameterState {
  int64_t steps = 0;  ///< Number of updates.
  /// The slots in their slot_shape(), and "master" for bf16; empty before the first update.
  std::vector<NamedTensor> tensors = {};
};

/// Base class of the optimizers: parameter groups, learning rate and state.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates all parameters that have a gradient. If it throws (out of memory, a gradient of
  /// another dtype), no parameter has been updated. The first step also throws if no parameter has a
  /// gradient, or if the last backward pass has reached a leaf that is not trained: a parameter of
  /// a module tree without parameters in an optimizer, or a leaf without module and optimizer that
  /// is older than this optimizer. The error names module and shape.
  void step();
  /// Drops the gradients of all parameters.
  void zero_grad();

  /// Returns the learning rate, without the groups' lr_scale.
  double learning_rate() const { return lr_; }
  /// Sets the learning rate. Throws Error if it is negative or not finite.
  void set_learning_rate(double lr);

  /// Returns the learning rate in the options of the constructor, if it was set there.
  std::optional<double> given_learning_rate() const { return given_lr_; }

  /// Returns the parameter groups.
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// Returns all parameters, group by group; state() has the same order.
  Tensors parameters() const;

  /// Restricts updates and state to one range of elements per parameter (ZeRO); the state is then
  /// one-dimensional. State outside of the ranges is dropped. An empty list restores full updates;
  /// load_state() must follow. Throws Error if the optimizer needs whole parameters (Muon).
  void keep_ranges(std::vector<ElementRange> ranges);
  /// Returns the state of all parameters: handles, not copies, which the next step changes.
  const std::vector<ParameterState>& state() const { return state_; }
  /// Throws Error "[load_state] …" unless load_state() would accept this state.
  void check_state(const std::vector<ParameterState>& state) const;
  /// Replaces the state by copies of these tensors. `state` is that of whole parameters, also after
  /// keep_ranges(). All tensors are checked before anything is changed.
  void load_state(const std::vector<ParameterState>& state);

  /// Returns "SGD", "Adam", "AdamW" or "Muon".
  virtual const char* name() const = 0;
  /// Returns the names of the state tensors of parameter i, without the master weights.
  virtual std::vector<std::string> slots(size_t i) const = 0;
  /// Returns the names of the state tensors of parameter i: slots(i), and "master" for bf16.
  std::vector<std::string> state_names(size_t i) const;
  /// Returns the shape of a state tensor of a parameter, or of a range of one: the same shape, unless
  /// the optimizer needs whole parameters.
  virtual Shape slot_shape(const std::string& name, const Shape& parameter) const;

 protected:
  /// Throws Error if there is no parameter, or if one is no leaf of floating dtype, overlaps itself
  /// or is given twice.
  Optimizer(std::vector<ParameterGroup> groups, std::optional<double> lr, double weight_decay);

  /// The update of one parameter. All tensors are contiguous and on the parameter's device.
  struct Update {
    size_t index;         ///< Of the parameter, as in state().
    Tensor weight;        ///< The parameter, or its range.
    Tensor gradient;      ///< In the weight's shape and dtype.
    Tensor master;        ///< f32 master weights; undefined unless the weight is bf16.
    Tensors slots;        ///< In the order of slots(); zeros before the first step.
    int64_t step;         ///< Number of this update, from 1.
    double lr;            ///< Learning rate, with lr_scale and lr_factor.
    double lr_scale;      ///< Of the group, with lr_factor.
    double weight_decay;  ///< Of the parameter's group, or of the optimizer.
  };
  /// Makes all updates in place. If it throws, no update has been made.
  virtual void update(const std::vector<Update>& all) const = 0;
  /// True if the update of an element depends on no other element of the parameter.
  virtual bool is_elementwise() const { return true; }
  /// True during CUDA graph capture; replays then use new values of lr and step.
  static bool captured(const Update& update);

 private:
  void check_first_step();
  bool skips(size_t i, const Tensor& parameter) const;
  Tensor range_of(size_t i, const Tensor& whole) const;
  void drop_other_ranges();
  struct Prepared;
  Prepared prepared(size_t i, const Tensor& parameter, const ParameterGroup& group,
                    Update& update) const;

  std::vector<ParameterGroup> groups_;
  std::vector<ParameterState> state_;
  std::vector<ElementRange> ranges_;  // one per parameter; empty: whole parameters
  std::optional<double> given_lr_;
  double lr_;
  uint64_t created_;      // tape number
  bool checked_ = false;  // by check_first_step()
};

/// Options of SGD.
struct SGDOptions {
  std::optional<double> lr = {};  ///< Learning rate; by default 1e-3.
  double momentum = 0;            ///< Momentum factor μ; 0: no momentum.
  double weight_decay = 0;        ///< Factor λ of the L2 penalty.
  double dampening = 0;           ///< Dampening of the momentum.
  bool nesterov = false;          ///< Nesterov's momentum; needs momentum and no dampening.
};

/// Stochastic gradient descent, as in PyTorch: g ← g + λ·w, b ← μ·b + (1 − dampening)·g (b = g in
/// the first step), w ← w − lr·b, or with Nesterov's momentum w ← w − lr·(g + μ·b).
class SGD : public Optimizer {
 public:
  using Options = SGDOptions;  ///< Options of the constructor.
  /// One group of parameters.
  SGD(Tensors parameters, Options options);
  /// Several groups of parameters.
  SGD(std::vector<ParameterGroup> groups, Options options);

  const char* name() const override { return "SGD"; }
  std::vector<std::string> slots(size_t i) const override;
  const Options options;  ///< The options of the constructor.

 private:
  void update(const std::vector<Update>& all) const override;
};

/// Options of Adam.
struct AdamOptions {
  std::optional<double> lr = {};  ///< Learning rate; by default 1e-3.
  double beta1 = 0.9;             ///< Decay β₁ of the mean of gradients, in [0, 1).
  double beta2 = 0.999;           ///< Decay β₂ of the mean of squared gradients, in [0, 1).
  double eps = 1e-8;              ///< Added to √v̂.
  double weight_decay = 0;        ///< Factor λ of the L2 penalty.
  bool amsgrad = false;           ///< Uses the largest v so far.
};

/// Adam (Kingma & Ba, 2015, algorithm 1): m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g²,
/// w ← w − lr·m̂ / (√v̂ + eps) with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ). Weight decay is added to
/// the gradient: g ← g + λ·w. amsgrad uses the largest v so far instead of v (Reddi et al., 2018).
class Adam : public Optimizer {
 public:
  using Options = AdamOptions;  ///< Options of the constructor.
  /// One group of parameters.
  Adam(Tensors parameters, Options options);
  /// Several groups of parameters.
  Adam(std::vector<ParameterGroup> groups, Options options);

  const char* name() const override { return "Adam"; }
  std::vector<std::string> slots(size_t i) const override;
  const Options options;  ///< The options of the constructor.

 protected:
  /// `decoupled` selects the weight decay of AdamW.
  Adam(std::vector<ParameterGroup> groups, Options options, bool decoupled);
  /// Returns the step of one parameter. `update` must live as long as a captured step.
  AdamTask task(const Update& update) const;

 private:
  void update(const std::vector<Update>& all) const override;
  const bool decoupled_;
};

/// Options of AdamW.
struct AdamWOptions {
  std::optional<double> lr = {};  ///< Learning rate; by default 1e-3.
  double beta1 = 0.9;             ///< Decay β₁ of the mean of gradients, in [0, 1).
  double beta2 = 0.999;           ///< Decay β₂ of the mean of squared gradients, in [0, 1).
  double eps = 1e-8;              ///< Added to √v̂.
  double weight_decay = 1e-2;     ///< Decoupled weight decay λ.
  bool amsgrad = false;           ///< Uses the largest v so far.
};

/// Adam with decoupled weight decay: w ← (1 − lr·λ)·w before the step (Loshchilov & Hutter, 2019).
class AdamW : public Adam {
 public:
  using Options = AdamWOptions;  ///< Options of the constructor.
  /// One group of parameters.
  AdamW(Tensors parameters, Options options);
  /// Several groups of parameters.
  AdamW(std::vector<ParameterGroup> groups, Options options);
  const char* name() const override { return "AdamW"; }
};

/// Scales all gradients so that their common L2 norm is at most `max_norm`. Returns the norm before
/// scaling, f64 [] on the device of the gradients, summed in f64 in a fixed order; the host does
/// not wait for it. If the norm is NaN or infinite, the gradients are not changed.
Tensor clip_grad_norm(const Tensors& parameters, double max_norm);

}  // namespace stretto::nn
