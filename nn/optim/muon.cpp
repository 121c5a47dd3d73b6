#include "nn/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* momentum_name = "momentum";

MuonOptions checked(MuonOptions o) {
  check(o.momentum >= 0 && o.momentum < 1, "Muon", "momentum must lie in [0, 1), got ", o.momentum);
  return o;
}

// x / max(‖x‖, 1e-7)
Tensor normalized(const Tensor& x) { return x / clamp(l2_norm({x}).to(x.dtype()), 1e-7, HUGE_VAL); }

// The iteration on a matrix whose norm is at most 1.
Tensor orthogonalized(Tensor x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool wide = x.size(0) <= x.size(1);  // the smaller of x·xᵀ and xᵀ·x is computed
  for (int step = 0; step < 5; ++step) {
    const Tensor xt = x.transpose(0, 1);
    const Tensor gram = wide ? matmul(x, xt) : matmul(xt, x);
    const Tensor factor = matmul(gram, gram).mul_(c).add_(gram, b);
    x = (wide ? matmul(factor, x) : matmul(x, factor)).add_(x, a);
  }
  return x;
}

double factor_of(MuonScale scale, const Shape& shape) {
  const auto out = double(shape[0]), in = double(shape[1]);
  if (scale == MuonScale::original) return std::sqrt(std::max(1.0, out / in));
  return 0.2 * std::sqrt(std::max(out, in));
}

}  // namespace

Tensor newton_schulz(const Tensor& x) {
  check(x.dim() == 2 && is_floating(x.dtype()), "newton_schulz", "x is ", x,
        "; must be a matrix of floating dtype");
  const NoGrad guard;
  return orthogonalized(normalized(x.detach().to(compute_type(x.dtype()))).to(x.dtype()));
}

Muon::Muon(Tensors parameters, Options o)
    : Muon(std::vector<ParameterGroup>{{.parameters = std::move(parameters)}}, o) {}

Muon::Muon(std::vector<ParameterGroup> groups, Options o)
    : Adam(std::move(groups), {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}, true),
      options(checked(o)) {
  for (const ParameterGroup& group : this->groups())
    for (const Tensor& p : group.parameters)
      is_matrix_.push_back(group.use_muon && p.dim() == 2 && p.numel() > 0);
}

std::vector<std::string> Muon::slots(size_t i) const {
  if (is_matrix_[i]) return {momentum_name};
  return Adam::slots(i);
}

// Everything that can fail comes first: only the last loops change weights and state.
void Muon::update(const std::vector<Update>& all) const {
  struct Momentum {
    Tensor mean, gradient;
  };
  std::vector<AdamTask> others;
  std::vector<SgdTask> matrices;
  std::vector<Momentum> momenta;
  for (const Update& u : all) {
    if (u.slots.size() > 1) {
      others.push_back(task(u));
      continue;
    }
    const double mu = options.momentum;
    const Tensor g = u.gradient.to(u.slots[0].dtype());
    Tensor mean = u.slots[0].clone().mul_(mu).add_(g, 1 - mu);
    if (options.nesterov) mean.mul_(mu).add_(g, 1 - mu);
    momenta.push_back({u.slots[0], g});
    const Tensor direction = orthogonalized(normalized(mean).to(u.weight.dtype()));
    const auto step = [&u, factor = factor_of(options.scale, u.weight.shape())] {
      return SgdStep{.lr = u.lr * factor,
                     .momentum = 0,
                     .dampening = 0,
                     .weight_decay = u.weight_decay / factor,
                     .nesterov = false,
                     .first = false};
    };
    matrices.push_back({u.weight, direction, u.master, Tensor(), step(),
                        captured(u) ? step : std::function<SgdStep()>()});
  }
  sgd_steps(matrices);
  adam_steps(others);
  for (const Momentum& m : momenta)
    m.mean.mul_(options.momentum).add_(m.gradient, 1 - options.momentum);
}

}  // namespace stretto::nn
