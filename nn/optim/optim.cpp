#include "nn/optim/optim.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>

#include "autograd/last_leaves.h"
#include "autograd/tape.h"
#include "core/gpu_runtime.h"
#include "nn/leaf_owners.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr int64_t max_steps = int64_t(1) << 53;  // Adam's bias correction uses doubles

constexpr const char* master_name = "master";

// The factor of the learning rate in update t of a parameter.
double lr_scale_at(const ParameterGroup& group, int64_t t) {
  if (!group.lr_factor) return group.lr_scale;
  const double factor = group.lr_factor(t);
  check(std::isfinite(factor) && factor >= 0, "Optimizer", "lr_factor(", t, ") of a group is ",
        factor, "; accepted: a finite number ≥ 0");
  return group.lr_scale * factor;
}

std::vector<ParameterGroup> one_group(Tensors parameters) {
  std::vector<ParameterGroup> groups(1);
  groups[0].parameters = std::move(parameters);
  return groups;
}

}  // namespace

Optimizer::Optimizer(std::vector<ParameterGroup> groups, std::optional<double> lr,
                     double weight_decay)
    : groups_(std::move(groups)), given_lr_(lr), created_(next_tape_number()) {
  set_learning_rate(lr.value_or(1e-3));
  std::unordered_set<const void*> seen;
  for (ParameterGroup& group : groups_) {
    group.weight_decay = group.weight_decay.value_or(weight_decay);
    for (const Tensor& p : group.parameters) {
      check(p.defined() && p.is_leaf() && is_floating(p.dtype()), "Optimizer",
            "a parameter must be a leaf of floating dtype, got ", p);
      check(!overlaps_itself(p), "Optimizer", "a parameter (", p, ", strides ", p.strides(),
            ") has overlapping elements");
      check(seen.insert(p.id()).second, "Optimizer", "a parameter (", p, ") is given twice");
    }
  }
  check(!seen.empty(), "Optimizer", "there are no parameters; pass at least one");
  state_.resize(seen.size());
  for (const Tensor& p : parameters()) count_optimizers(p, 1);
}

Optimizer::~Optimizer() {
  for (const ParameterGroup& group : groups_)
    for (const Tensor& p : group.parameters) count_optimizers(p, -1);
}

bool Optimizer::captured(const Update& update) {
  const Device device = update.weight.device();
  return device.is_cuda() && cuda::capturing(device.index);
}

Tensors Optimizer::parameters() const {
  Tensors all;
  for (const ParameterGroup& group : groups_)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

void Optimizer::set_learning_rate(double lr) {
  check(lr >= 0 && std::isfinite(lr), "Optimizer", "the learning rate must be ≥ 0, got ", lr);
  lr_ = lr;
}

void Optimizer::zero_grad() {
  for (const Tensor& p : parameters()) p.set_grad({});
}

// A parameter to be updated, and the memory that it needs besides its Update.
struct Optimizer::Prepared {
  size_t i;
  const ParameterGroup* group;
  Tensor parameter, whole;
  // State tensors to be created: before the first step, and after a move to another device.
  std::vector<NamedTensor> new_state;
};

void Optimizer::check_first_step() {
  const Tensors all = parameters();
  check(!ranges_.empty() ||
            std::any_of(all.begin(), all.end(), [](const Tensor& p) { return p.grad().defined(); }),
        name(),
        "no parameter has a gradient; call backward() before the first step, and make the "
        "optimizer from the parameters that the model has now");
  check_trained(name(), all, created_);
  checked_ = true;
}

void Optimizer::step() {
  if (!checked_) check_first_step();
  NoGrad guard;
  std::vector<Prepared> steps;
  auto shared = std::make_shared<std::vector<Update>>();  // outlives this call in a captured step
  std::vector<Update>& updates = *shared;
  size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& parameter : group.parameters) {
      const size_t i = index++;
      if (!parameter.grad().defined() || skips(i, parameter)) continue;
      updates.emplace_back();
      steps.push_back(prepared(i, parameter, group, updates.back()));
    }
  }
  update(updates);
  for (Prepared& step : steps) {
    ParameterState& state = state_[step.i];
    if (!step.new_state.empty()) state.tensors = std::move(step.new_state);
    ++state.steps;
    if (!step.whole.same(step.parameter)) step.parameter.copy_(step.whole);
  }
  if (updates.empty() || !captured(updates[0])) return;
  // The first replay makes the update that was captured; each further replay is a new step.
  std::vector<std::pair<size_t, const ParameterGroup*>> order;
  for (const Prepared& step : steps) order.push_back({step.i, step.group});
  cuda::before_replay(updates[0].weight.device().index,
                      [this, shared, order, first = true]() mutable {
                        for (size_t i = 0; i < order.size(); ++i) {
                          const auto& [at, group] = order[i];
                          Update& u = (*shared)[i];
                          u.step = first ? u.step : ++state_[at].steps;
                          u.lr_scale = lr_scale_at(*group, u.step);
                          u.lr = lr_ * u.lr_scale;
                        }
                        first = false;
                      });
}

Optimizer::Prepared Optimizer::prepared(size_t i, const Tensor& parameter,
                                        const ParameterGroup& group, Update& u) const {
  const Tensor gradient = parameter.grad();
  check(gradient.dtype() == parameter.dtype(), name(), "gradient ", gradient, " of a parameter ",
        parameter);
  const Tensor whole = parameter.is_contiguous() ? parameter : parameter.detach().contiguous();
  const Tensor weight = range_of(i, whole);

  const auto& [steps, old_state] = state_[i];
  const std::vector<std::string> names = state_names(i);
  std::vector<NamedTensor> new_state;
  if (old_state.empty()) {
    for (const std::string& slot : names) {
      Tensor value = empty(slot_shape(slot, weight.shape()),
                           {.dtype = compute_type(weight.dtype()), .device = weight.device()})
                         .zero_();
      if (slot == master_name) value.copy_(weight);
      new_state.push_back({slot, value});
    }
  } else if (old_state[0].tensor.device() != weight.device()) {
    for (const auto& [slot, value] : old_state)
      new_state.push_back({slot, value.to(weight.device())});
  }
  const std::vector<NamedTensor>& state = new_state.empty() ? old_state : new_state;
  const bool fits =
      state.size() == names.size() && std::all_of(state.begin(), state.end(), [&](auto& n) {
        return n.tensor.dtype() == compute_type(weight.dtype()) &&
               n.tensor.shape() == slot_shape(n.name, weight.shape());
      });
  check(fits, name(), "a parameter has become ", parameter,
        " since its first step; convert the module before training");

  Tensor g = range_of(i, gradient.detach().contiguous()).to(weight.device());
  if (may_overlap(weight, g)) g = g.clone();  // update() reads g while it writes the weight
  u = {.index = i,
       .weight = weight,
       .gradient = g,
       .master = {},
       .slots = {},
       .step = steps + 1,
       .lr = 0,
       .lr_scale = lr_scale_at(group, steps + 1),
       .weight_decay = *group.weight_decay};
  u.lr = lr_ * u.lr_scale;
  for (const NamedTensor& n : state)
    (n.name == master_name ? u.master : u.slots.emplace_back()) = n.tensor;
  return {i, &group, parameter, whole, std::move(new_state)};
}

bool Optimizer::skips(size_t i, const Tensor& parameter) const {
  return !ranges_.empty() && ranges_[i].begin == ranges_[i].end && parameter.numel() > 0;
}

Tensor Optimizer::range_of(size_t i, const Tensor& whole) const {
  if (ranges_.empty() || whole.numel() == 0) return whole;
  return whole.detach().reshape({whole.numel()}).slice(0, ranges_[i].begin, ranges_[i].end);
}

void Optimizer::keep_ranges(std::vector<ElementRange> ranges) {
  check(ranges.empty() || ranges.size() == state_.size(), "Optimizer", ranges.size(),
        " ranges for ", state_.size(), " parameters; needs one for each, or none");
  check(ranges.empty() || is_elementwise(), name(),
        "its state cannot be sharded, because the update of an element depends on the whole "
        "parameter; accepted: SGD, Adam and AdamW");
  if (ranges == ranges_) return;
  const bool whole = ranges_.empty();
  ranges_ = std::move(ranges);
  if (whole) return drop_other_ranges();
  for (ParameterState& state : state_) state = {};
}

void Optimizer::drop_other_ranges() {
  if (ranges_.empty()) return;
  NoGrad guard;
  const Tensors all = parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    if (skips(i, all[i])) state_[i] = {};
    for (NamedTensor& n : state_[i].tensors) n.tensor = range_of(i, n.tensor).clone();
  }
}

std::vector<std::string> Optimizer::state_names(size_t i) const {
  std::vector<std::string> names = slots(i);
  for (const ParameterGroup& group : groups_) {
    if (i < group.parameters.size()) {
      if (is_narrow(group.parameters[i].dtype())) names.push_back(master_name);
      break;
    }
    i -= group.parameters.size();
  }
  return names;
}

Shape Optimizer::slot_shape(const std::string&, const Shape& parameter) const { return parameter; }

void Optimizer::check_state(const std::vector<ParameterState>& state) const {
  const Tensors all = parameters();
  check(state.size() == all.size(), "load_state", "the state has ", state.size(), " parameters, ",
        name(), " has ", all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [steps, tensors] = state[i];
    check(steps >= 0 && steps <= max_steps, "load_state", "parameter ", i, " has had ", steps,
          " steps; accepted: 0 to ", max_steps);
    if (steps == 0 && tensors.empty()) continue;
    const std::vector<std::string> names = state_names(i);
    std::string have, want;
    for (const NamedTensor& n : tensors) have += " " + n.name;
    for (const std::string& n : names) want += " " + n;
    check(have == want, "load_state", "parameter ", i, ": the state has", have, ", ", name(),
          " needs", want);
    for (const NamedTensor& n : tensors) {
      const Shape shape = slot_shape(n.name, all[i].shape());
      check(n.tensor.shape() == shape && n.tensor.dtype() == compute_type(all[i].dtype()),
            "load_state", "parameter ", i, ": ", n.name, " is ", n.tensor, ", expected ",
            compute_type(all[i].dtype()), " ", shape);
    }
  }
}

void Optimizer::load_state(const std::vector<ParameterState>& state) {
  check_state(state);
  NoGrad guard;
  const Tensors all = parameters();
  std::vector<ParameterState> copy = state;
  for (size_t i = 0; i < copy.size(); ++i)
    for (NamedTensor& n : copy[i].tensors)
      n.tensor = n.tensor.detach().to(all[i].device()).contiguous().clone();
  state_ = std::move(copy);
  drop_other_ranges();
}

// SGD

namespace {

SGD::Options checked(SGD::Options o) {
  check(o.momentum >= 0, "SGD", "momentum must be ≥ 0, got ", o.momentum);
  check(o.weight_decay >= 0, "SGD", "weight_decay must be ≥ 0, got ", o.weight_decay);
  check(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "SGD",
        "nesterov needs momentum > 0 and no dampening");
  return o;
}

}  // namespace

SGD::SGD(Tensors parameters, Options o) : SGD(one_group(std::move(parameters)), o) {}

SGD::SGD(std::vector<ParameterGroup> groups, Options o)
    : Optimizer(std::move(groups), o.lr, o.weight_decay), options(checked(o)) {}

std::vector<std::string> SGD::slots(size_t) const {
  if (options.momentum == 0) return {};
  return {"momentum"};
}

void SGD::update(const std::vector<Update>& all) const {
  std::vector<SgdTask> tasks;
  for (const Update& u : all) {
    const auto step = [this, &u] {
      return SgdStep{.lr = u.lr,
                     .momentum = options.momentum,
                     .dampening = options.dampening,
                     .weight_decay = u.weight_decay,
                     .nesterov = options.nesterov,
                     .first = u.step == 1};
    };
    tasks.push_back({u.weight, u.gradient, u.master, u.slots.empty() ? Tensor() : u.slots[0],
                     step(), captured(u) ? step : std::function<SgdStep()>()});
  }
  sgd_steps(tasks);
}

// Adam and AdamW

namespace {

Adam::Options checked(Adam::Options o, const char* name) {
  check(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, name,
        "beta1 and beta2 must lie in [0, 1), got ", o.beta1, " and ", o.beta2);
  check(o.eps >= 0, name, "eps must be ≥ 0, got ", o.eps);
  check(o.weight_decay >= 0, name, "weight_decay must be ≥ 0, got ", o.weight_decay);
  return o;
}

}  // namespace

Adam::Adam(Tensors parameters, Options o) : Adam(one_group(std::move(parameters)), o, false) {}

Adam::Adam(std::vector<ParameterGroup> groups, Options o) : Adam(std::move(groups), o, false) {}

Adam::Adam(std::vector<ParameterGroup> groups, Options o, bool decoupled)
    : Optimizer(std::move(groups), o.lr, o.weight_decay),
      options(checked(o, decoupled ? "AdamW" : "Adam")),
      decoupled_(decoupled) {}

AdamW::AdamW(Tensors parameters, Options o) : AdamW(one_group(std::move(parameters)), o) {}

AdamW::AdamW(std::vector<ParameterGroup> groups, Options o)
    : Adam(std::move(groups), {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad}, true) {}

std::vector<std::string> Adam::slots(size_t) const {
  if (options.amsgrad) return {"m", "v", "v_max"};
  return {"m", "v"};
}

AdamTask Adam::task(const Update& u) const {
  const auto step = [this, &u] {
    return AdamStep{.lr = u.lr,
                    .beta1 = options.beta1,
                    .beta2 = options.beta2,
                    .eps = options.eps,
                    .weight_decay = u.weight_decay,
                    .decoupled = decoupled_,
                    .correction1 = 1 - std::pow(options.beta1, double(u.step)),
                    .correction2 = std::sqrt(1 - std::pow(options.beta2, double(u.step)))};
  };
  return {u.weight,   u.gradient,
          u.master,   u.slots[0],
          u.slots[1], options.amsgrad ? u.slots[2] : Tensor(),
          step(),     captured(u) ? step : std::function<AdamStep()>()};
}

void Adam::update(const std::vector<Update>& all) const {
  std::vector<AdamTask> tasks;
  for (const Update& u : all) tasks.push_back(task(u));
  adam_steps(tasks);
}

// Clipping

Tensor clip_grad_norm(const Tensors& parameters, double max_norm) {
  check(max_norm >= 0, "clip_grad_norm", "max_norm must be ≥ 0, got ", max_norm);
  Tensors gradients;
  std::unordered_set<const void*> seen;
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined() && seen.insert(g.id()).second) gradients.push_back(g);

  Tensor norm = l2_norm(gradients);
  clip_to_norm(gradients, norm, max_norm);
  return norm;
}

}  // namespace stretto::nn
