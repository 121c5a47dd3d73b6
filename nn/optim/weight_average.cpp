#include "nn/optim/weight_average.h"

#include <cmath>
#include <unordered_map>

#include "autograd/tape.h"
#include "ops/view.h"

namespace stretto::nn {

WeightAverage::WeightAverage(const Module& model, Options o)
    : options(o), parameters_(model.named_parameters()) {
  check(o.decay >= 0 && o.decay < 1, "WeightAverage", "decay ", o.decay,
        "; accepted: at least 0 and below 1");
  const NoGrad guard;
  for (const NamedTensor& p : parameters_)
    averages_.push_back(p.tensor.detach().to(compute_type(p.tensor.dtype())).clone());
}

// For decay d, the weight of wᵢ in the average of w₁ … wₜ is (1 − d) dᵗ⁻ⁱ / (1 − dᵗ).
void WeightAverage::update() {
  check(!used_, "WeightAverage",
        "update() cannot be called while the model has the averages (WeightAverage::Use)");
  const NoGrad guard;
  const double d = options.decay, t = double(++updates_);
  const double newest = (1 - d) / (1 - std::pow(d, t));
  for (size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& w = parameters_[i].tensor;
    if (averages_[i].device() != w.device()) averages_[i] = averages_[i].to(w.device());
    averages_[i].mul_(1 - newest).add_(w.detach(), newest);
  }
}

WeightAverage::Use::Use(WeightAverage& average) : average_(average) {
  check(!average.used_, "WeightAverage", "the model has the averages already");
  const NoGrad guard;
  Tensors rounded;  // allocates everything before the first change
  for (size_t i = 0; i < average.averages_.size(); ++i) {
    const Tensor& w = average.parameters_[i].tensor;
    weights_.push_back(w.detach().clone());
    rounded.push_back(average.averages_[i].to(w.dtype()).to(w.device()));
  }
  for (size_t i = 0; i < weights_.size(); ++i) average.parameters_[i].tensor.copy_(rounded[i]);
  average.used_ = true;
}

WeightAverage::Use::~Use() {
  const NoGrad guard;
  for (size_t i = 0; i < weights_.size(); ++i) average_.parameters_[i].tensor.copy_(weights_[i]);
  average_.used_ = false;
}

std::vector<NamedTensor> WeightAverage::tensors() const {
  std::vector<NamedTensor> all;
  for (size_t i = 0; i < averages_.size(); ++i) all.push_back({parameters_[i].name, averages_[i]});
  return all;
}

void WeightAverage::load(const std::vector<NamedTensor>& tensors, int64_t updates) {
  check(updates >= 0, "WeightAverage", updates, " updates; must be ≥ 0");
  std::unordered_map<std::string, Tensor> given;
  for (const NamedTensor& n : tensors) given[n.name] = n.tensor;
  for (const NamedTensor& n : this->tensors()) {
    const auto found = given.find(n.name);
    check(found != given.end(), "WeightAverage", "the average of ", n.name, " is missing");
    check(found->second.shape() == n.tensor.shape() && found->second.dtype() == n.tensor.dtype(),
          "WeightAverage", "the average of ", n.name, " is ", found->second, "; must be ",
          n.tensor);
  }
  check(given.size() == averages_.size(), "WeightAverage", given.size(),
        " averages of a model with ", averages_.size(), " parameters");
  const NoGrad guard;
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].copy_(given.at(parameters_[i].name));
  updates_ = updates;
}

}  // namespace stretto::nn
