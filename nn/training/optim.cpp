#include "nn/training/optim.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "autograd/tape.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

constexpr int64_t most_steps = int64_t(1) << 53;  // they enter the corrections of Adam as doubles

constexpr const char* master_name = "master";
constexpr int64_t grain = 32768;

std::vector<ParameterGroup> one_group(Tensors parameters) {
  std::vector<ParameterGroup> groups(1);
  groups[0].parameters = std::move(parameters);
  return groups;
}

DType state_dtype(const Tensor& parameter) { return parameter.dtype() == f64 ? f64 : f32; }

// Element i of a parameter in the precision of the update. Where a bf16 weight is no longer its
// master copy rounded, it was set from outside, and the weight counts.
template <class P>
compute_t<P> load(const P* weight, const compute_t<P>* master, int64_t i) {
  if constexpr (std::is_same_v<P, BFloat16>) {
    const float kept = master[i], fresh = float(weight[i]);
    return BFloat16(kept).bits == weight[i].bits ? kept : fresh;
  } else {
    return weight[i];
  }
}

template <class P>
void store(P* weight, compute_t<P>* master, int64_t i, compute_t<P> value) {
  if constexpr (std::is_same_v<P, BFloat16>) master[i] = value;
  weight[i] = P(value);
}

// Pointer to element i; null for an undefined tensor.
template <class T>
T* at(const Tensor& x, int64_t i) {
  return x.defined() ? x.data<T>() + i : nullptr;
}

}  // namespace

Optimizer::Optimizer(std::vector<ParameterGroup> groups, double lr, double weight_decay)
    : groups_(std::move(groups)), weight_decay_(weight_decay) {
  set_learning_rate(lr);
  std::unordered_set<const void*> seen;
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& p : group.parameters) {
      check(p.defined() && p.is_leaf() && is_floating(p.dtype()), "Optimizer",
            "a parameter must be a leaf of floating dtype, got ", p);
      check(!overlaps_itself(p), "Optimizer", "a parameter (", p, ", strides ", p.strides(),
            ") shows some elements more than once");
      check(seen.insert(p.id()).second, "Optimizer", "a parameter (", p, ") is given twice");
    }
  }
  state_.resize(seen.size());
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

// One parameter's step, with all the memory it needs.
struct Optimizer::Prepared {
  size_t i;
  Tensor parameter;
  std::vector<NamedTensor> first;  // the state, before the first step
  Update update;
};

void Optimizer::step() {
  NoGrad guard;
  std::vector<Prepared> steps;
  size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& parameter : group.parameters) {
      const size_t i = index++;
      if (parameter.grad().defined()) steps.push_back(prepared(i, parameter, group));
    }
  }
  for (Prepared& s : steps) take(s);
}

Optimizer::Prepared Optimizer::prepared(size_t i, const Tensor& parameter,
                                        const ParameterGroup& group) const {
  const Tensor gradient = parameter.grad();
  check(gradient.dtype() == parameter.dtype(), name(), "gradient ", gradient, " of a parameter ",
        parameter);
  const bool in_place = parameter.device().is_cpu() && parameter.is_contiguous();
  const Tensor weight = in_place ? parameter : parameter.detach().to(cpu).contiguous();

  const auto& [steps, kept] = state_[i];
  const std::vector<std::string> names = state_names(i);
  std::vector<NamedTensor> first;
  if (kept.empty()) {
    for (const std::string& slot : names) {
      Tensor value = empty(weight.shape(), {.dtype = state_dtype(weight)}).zero_();
      if (slot == master_name) value.copy_(weight);
      first.push_back({slot, value});
    }
  }
  const std::vector<NamedTensor>& state = kept.empty() ? first : kept;
  const bool fits =
      state.size() == names.size() && std::ranges::all_of(state, [&](auto& n) {
        return n.tensor.dtype() == state_dtype(weight) && n.tensor.shape() == weight.shape();
      });
  check(fits, name(), "a parameter has become ", parameter,
        " since its first step; convert a module before it is trained");

  Tensor slope = gradient.detach().to(cpu).contiguous();
  if (may_overlap(weight, slope)) slope = slope.clone();  // update() reads it while it writes
  Update u{.weight = weight,
           .gradient = slope,
           .master = {},
           .slots = {},
           .step = steps + 1,
           .lr = lr_ * group.lr_scale,
           .weight_decay = group.weight_decay.value_or(weight_decay_)};
  for (const NamedTensor& n : state)
    (n.name == master_name ? u.master : u.slots.emplace_back()) = n.tensor;
  return {i, parameter, std::move(first), std::move(u)};
}

void Optimizer::take(Prepared& step) {
  auto& [steps, kept] = state_[step.i];
  if (kept.empty()) kept = std::move(step.first);
  for (const NamedTensor& n : kept) ++n.tensor.storage().version;
  const Tensor& weight = step.update.weight;
  update(step.update);
  ++steps;
  if (weight.same(step.parameter)) {
    ++weight.storage().version;
  } else {
    step.parameter.copy_(weight);
  }
}

std::vector<std::string> Optimizer::state_names(size_t i) const {
  std::vector<std::string> names = slots();
  for (const ParameterGroup& group : groups_) {
    if (i < group.parameters.size()) {
      if (group.parameters[i].dtype() == bf16) names.push_back(master_name);
      break;
    }
    i -= group.parameters.size();
  }
  return names;
}

void Optimizer::check_state(const std::vector<ParameterState>& state) const {
  const Tensors all = parameters();
  check(state.size() == all.size(), "load_state", "state of ", state.size(), " parameters, ",
        name(), " has ", all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [steps, tensors] = state[i];
    check(steps >= 0 && steps <= most_steps, "load_state", "parameter ", i, " has had ", steps,
          " steps; accepted: 0 to ", most_steps);
    if (steps == 0 && tensors.empty()) continue;
    const std::vector<std::string> names = state_names(i);
    std::string have, want;
    for (const NamedTensor& n : tensors) have += " " + n.name;
    for (const std::string& n : names) want += " " + n;
    check(have == want, "load_state", "parameter ", i, ": state holds", have, ", ", name(),
          " keeps", want);
    for (const NamedTensor& n : tensors)
      check(n.tensor.shape() == all[i].shape() && n.tensor.dtype() == state_dtype(all[i]),
            "load_state", "parameter ", i, ": ", n.name, " is ", n.tensor, ", expected ",
            state_dtype(all[i]), " ", all[i].shape());
  }
}

void Optimizer::load_state(const std::vector<ParameterState>& state) {
  check_state(state);
  NoGrad guard;
  std::vector<ParameterState> copy = state;
  for (ParameterState& s : copy)
    for (NamedTensor& n : s.tensors) n.tensor = n.tensor.detach().to(cpu).contiguous().clone();
  state_ = std::move(copy);
}

// SGD

// In the loops below, a pointer that may be null is asked for at compile time: as a condition it
// becomes masked vector accesses through null, which are ten times slower.
namespace {

struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, first;
};

template <class P, bool with_momentum, class T = compute_t<P>>
STRETTO_CLONES void sgd_loop(int64_t n, P* __restrict w, const P* __restrict grad,
                             T* __restrict master, T* __restrict b, const SgdStep s) {
  const T lr = T(s.lr), mu = T(s.momentum), share = T(1 - s.dampening), decay = T(s.weight_decay);
  for (int64_t i = 0; i < n; ++i) {
    const T x = load(w, master, i);
    T g = T(grad[i]) + decay * x;
    if constexpr (with_momentum) {
      b[i] = s.first ? g : mu * b[i] + share * g;
      g = s.nesterov ? g + mu * b[i] : b[i];
    }
    store(w, master, i, x - lr * g);
  }
}

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

std::vector<std::string> SGD::slots() const {
  if (options.momentum == 0) return {};
  return {"momentum"};
}

void SGD::update(const Update& u) const {
  const SgdStep s{.lr = u.lr,
                  .momentum = options.momentum,
                  .dampening = options.dampening,
                  .weight_decay = u.weight_decay,
                  .nesterov = options.nesterov,
                  .first = u.step == 1};
  dispatch_floating(u.weight.dtype(), "SGD", [&](auto tag) {
    using P = typename decltype(tag)::type;
    using T = compute_t<P>;
    parallel_for(u.weight.numel(), grain, [&](int64_t begin, int64_t end) {
      const auto loop = u.slots.empty() ? sgd_loop<P, false> : sgd_loop<P, true>;
      loop(end - begin, at<P>(u.weight, begin), at<P>(u.gradient, begin), at<T>(u.master, begin),
           u.slots.empty() ? nullptr : at<T>(u.slots[0], begin), s);
    });
  });
}

// Adam and AdamW

namespace {

struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;
  double correction1, correction2;  // 1 − β₁ᵗ and √(1 − β₂ᵗ)
};

template <class P, bool amsgrad, class T = compute_t<P>>
STRETTO_CLONES void adam_loop(int64_t n, P* __restrict w, const P* __restrict grad,
                              T* __restrict master, T* __restrict m, T* __restrict v,
                              T* __restrict v_max, const AdamStep s) {
  const T shrink = T(s.decoupled ? 1 - s.lr * s.weight_decay : 1);
  const T decay = T(s.decoupled ? 0 : s.weight_decay);
  const T rate = T(s.lr / s.correction1), correction = T(s.correction2), eps = T(s.eps);
  const T share1 = T(1 - s.beta1), beta2 = T(s.beta2), share2 = T(1 - s.beta2);
  for (int64_t i = 0; i < n; ++i) {
    const T x = load(w, master, i);
    const T g = T(grad[i]) + decay * x;
    m[i] = m[i] + share1 * (g - m[i]);
    v[i] = beta2 * v[i] + share2 * g * g;
    T second = v[i];
    if constexpr (amsgrad) {
      second = v_max[i] > second ? v_max[i] : second;
      v_max[i] = second;
    }
    store(w, master, i, shrink * x - rate * m[i] / (math::sqrt(second) / correction + eps));
  }
}

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

std::vector<std::string> Adam::slots() const {
  if (options.amsgrad) return {"m", "v", "v_max"};
  return {"m", "v"};
}

void Adam::update(const Update& u) const {
  const AdamStep s{.lr = u.lr,
                   .beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .eps = options.eps,
                   .weight_decay = u.weight_decay,
                   .decoupled = decoupled_,
                   .correction1 = 1 - std::pow(options.beta1, double(u.step)),
                   .correction2 = std::sqrt(1 - std::pow(options.beta2, double(u.step)))};
  dispatch_floating(u.weight.dtype(), name(), [&](auto tag) {
    using P = typename decltype(tag)::type;
    using T = compute_t<P>;
    parallel_for(u.weight.numel(), grain, [&](int64_t begin, int64_t end) {
      const auto loop = options.amsgrad ? adam_loop<P, true> : adam_loop<P, false>;
      loop(end - begin, at<P>(u.weight, begin), at<P>(u.gradient, begin), at<T>(u.master, begin),
           at<T>(u.slots[0], begin), at<T>(u.slots[1], begin),
           options.amsgrad ? at<T>(u.slots[2], begin) : nullptr, s);
    });
  });
}

// Clipping

namespace {

// All of them or, where there is not enough memory, none.
void scale_all(const Tensors& tensors, double factor) {
  Tensors scaled;  // where it is not done in place
  for (const Tensor& x : tensors)
    scaled.push_back(x.device().is_cpu() && x.is_contiguous() ? Tensor() : x * factor);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor x = tensors[i];
    if (scaled[i].defined()) {
      x.copy_(scaled[i]);
      continue;
    }
    dispatch_floating(x.dtype(), "clip_grad_norm", [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = compute_t<T>;
      T* values = x.data<T>();
      parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) values[j] = T(C(values[j]) * C(factor));
      });
    });
    ++x.storage().version;
  }
}

}  // namespace

double clip_grad_norm(const Tensors& parameters, double max_norm) {
  check(max_norm >= 0, "clip_grad_norm", "max_norm must be ≥ 0, got ", max_norm);
  Tensors gradients;
  std::unordered_set<const void*> seen;
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined() && seen.insert(g.id()).second) gradients.push_back(g);

  double total = 0;
  for (const Tensor& gradient : gradients) {
    const Tensor g = gradient.detach().to(cpu).contiguous();
    std::vector<double> sums(size_t((g.numel() + grain - 1) / grain));
    dispatch_floating(g.dtype(), "clip_grad_norm", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* values = g.data<T>();
      parallel_for(g.numel(), grain, [&](int64_t begin, int64_t end) {
        double sum = 0;
        for (int64_t i = begin; i < end; ++i) sum += double(values[i]) * double(values[i]);
        sums[size_t(begin / grain)] = sum;
      });
    });
    for (double sum : sums) total += sum;
  }
  const double norm = std::sqrt(total);
  if (norm > max_norm && std::isfinite(norm)) {
    NoGrad guard;
    scale_all(gradients, max_norm / norm);
  }
  return norm;
}

}  // namespace stretto::nn
