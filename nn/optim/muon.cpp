#include "nn/optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* momentum_name = "momentum";
constexpr const char* variance_name = "row_variance";

MuonOptions checked(MuonOptions o) {
  check(o.momentum >= 0 && o.momentum < 1, "Muon", "momentum must lie in [0, 1), got ", o.momentum);
  const double beta = o.row_variance.value_or(0);
  check(beta >= 0 && beta < 1, "Muon", "row_variance ", beta, "; accepted: a decay in [0, 1)");
  return o;
}

struct Coefficients {
  double a, b, c;
};

// The steps of Polar Express, for five steps and a factor of 1.02 of the norm.
constexpr std::array<Coefficients, 5> polar_steps{
    {{8.156554524902461, -22.48329292557795, 15.878769915207462},
     {4.042929935166739, -2.808917465908714, 0.5000178451051316},
     {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
     {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
     {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}};

std::array<Coefficients, 5> steps_of(MuonIteration iteration) {
  if (iteration == MuonIteration::polar_express) return polar_steps;
  std::array<Coefficients, 5> steps;
  steps.fill({3.4445, -4.7750, 2.0315});
  return steps;
}

// Returns x, divided by its norm, in `type`.
Tensor normalized(const Tensor& x, MuonIteration iteration, DType type) {
  const Tensor norm = l2_norm({x}).to(x.dtype());
  const bool polar = iteration == MuonIteration::polar_express;
  return (x / (polar ? norm * 1.02 + 1e-6 : clamp(norm, 1e-7, HUGE_VAL))).to(type);
}

// The iteration on a matrix whose norm is at most 1.
Tensor orthogonalized(Tensor x, MuonIteration iteration) {
  const bool wide = x.size(0) <= x.size(1);  // the smaller of x·xᵀ and xᵀ·x is computed
  for (const auto& [a, b, c] : steps_of(iteration)) {
    const Tensor xt = x.transpose(0, 1);
    const Tensor gram = wide ? matmul(x, xt) : matmul(xt, x);
    const Tensor factor = matmul(gram, gram).mul_(c).add_(gram, b);
    x = (wide ? matmul(factor, x) : matmul(x, factor)).add_(x, a);
  }
  return x;
}

// Divides each row by the root of its mean square, and scales the matrix to its norm before.
Tensor with_equal_rows(const Tensor& x, const Tensor& mean_square) {
  const Tensor y = x / (sqrt(mean_square) + 1e-10);
  return y * (l2_norm({x}) / (l2_norm({y}) + 1e-10)).to(x.dtype());
}

double factor_of(MuonScale scale, const Shape& shape) {
  const auto out = double(shape[0]), in = double(shape[1]);
  if (scale == MuonScale::original) return std::sqrt(std::max(1.0, out / in));
  return 0.2 * std::sqrt(std::max(out, in));
}

Tensor orthogonal_factor(const char* op, const Tensor& x, MuonIteration iteration) {
  check(x.dim() == 2 && is_floating(x.dtype()), op, "x is ", x,
        "; must be a matrix of floating dtype");
  const NoGrad guard;
  return orthogonalized(normalized(x.detach().to(compute_type(x.dtype())), iteration, x.dtype()),
                        iteration);
}

}  // namespace

Tensor newton_schulz(const Tensor& x) {
  return orthogonal_factor("newton_schulz", x, MuonIteration::newton_schulz);
}

Tensor polar_express(const Tensor& x) {
  return orthogonal_factor("polar_express", x, MuonIteration::polar_express);
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
  if (!is_matrix_[i]) return Adam::slots(i);
  if (options.row_variance) return {momentum_name, variance_name};
  return {momentum_name};
}

Shape Muon::slot_shape(const std::string& name, const Shape& parameter) const {
  return name == variance_name ? Shape{parameter[0], 1} : parameter;
}

// Everything that can fail comes first: only the last loops change weights and state.
void Muon::update(const std::vector<Update>& all) const {
  struct Momentum {
    Tensor mean = {}, gradient = {};
    Tensor variance = {}, next_variance = {};  // with MuonOptions::row_variance
  };
  std::vector<AdamTask> others;
  std::vector<SgdTask> decays, matrices;
  std::vector<Momentum> momenta;
  for (const Update& u : all) {
    if (!is_matrix_[u.index]) {
      others.push_back(task(u));
      continue;
    }
    const double mu = options.momentum;
    const Tensor g = u.gradient.to(u.slots[0].dtype());
    Tensor mean = u.slots[0].clone().mul_(mu).add_(g, 1 - mu);
    if (options.nesterov) mean.mul_(mu).add_(g, 1 - mu);
    momenta.push_back({.mean = u.slots[0], .gradient = g});
    const MuonIteration iteration = options.iteration;
    Tensor direction = orthogonalized(normalized(mean, iteration, u.weight.dtype()), iteration);
    if (options.row_variance) {
      const double beta = *options.row_variance;
      const Tensor o = direction.to(g.dtype());
      const Tensor variance = u.slots[1].clone().mul_(beta).add_((o * o).mean({1}, true), 1 - beta);
      direction = with_equal_rows(o, variance).to(direction.dtype());
      momenta.back().variance = u.slots[1];
      momenta.back().next_variance = variance;
    }
    const double factor = factor_of(options.scale, u.weight.shape());
    const bool cautious = options.cautious_decay && u.weight_decay > 0;
    const auto add = [&u](std::vector<SgdTask>& to, const Tensor& along, double rate,
                          double decay) {
      const auto step = [&u, rate, decay] {
        return SgdStep{.lr = u.lr * rate,
                       .momentum = 0,
                       .dampening = 0,
                       .weight_decay = decay,
                       .nesterov = false,
                       .first = false};
      };
      to.push_back({u.weight, along, u.master, Tensor(), step(),
                    captured(u) ? step : std::function<SgdStep()>()});
    };
    if (cautious)  // a step along the elements that `direction` moves toward 0
      add(decays, where(ge(direction * u.weight, 0), u.weight, 0), u.weight_decay, 0);
    add(matrices, direction, factor, cautious ? 0 : u.weight_decay / factor);
  }
  if (!decays.empty()) sgd_steps(decays);
  sgd_steps(matrices);
  adam_steps(others);
  for (const Momentum& m : momenta) {
    m.mean.mul_(options.momentum).add_(m.gradient, 1 - options.momentum);
    if (m.variance.defined()) m.variance.copy_(m.next_variance);
  }
}

}  // namespace stretto::nn
