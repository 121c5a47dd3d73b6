#include "nn/linear.h"

#include <algorithm>
#include <cmath>

#include "nn/init.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

const Linear::Options& checked(const Linear::Options& o) {
  check(o.in > 0 && o.out > 0, "Linear", "sizes in = ", o.in, " and out = ", o.out,
        " must be positive");
  return o;
}

}  // namespace

LoraAdapter::LoraAdapter(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  check(o.rank >= 1 && o.in >= 1 && o.out >= 1, "LoraAdapter", "sizes in = ", o.in,
        ", out = ", o.out, ", rank = ", o.rank, "; must be at least 1");
  check(std::isfinite(o.scale), "LoraAdapter", "scale ", o.scale, "; must be finite");
  const double bound = 1 / std::sqrt(double(o.in));
  uniform_(a, -bound, bound);
  constant_(b, 0);
}

Tensor LoraAdapter::operator()(const Tensor& x) const {
  return linear(linear(dropout(x), a), b) * options.scale;
}

Tensor LoraAdapter::delta() const { return matmul(b, a) * options.scale; }

std::string LoraAdapter::label() const {
  return str("LoraAdapter(", options.in, " → ", options.rank, " → ", options.out, ")");
}

Linear::Linear(Options o) : options(checked(o)) { reset_parameters(); }

Linear::Linear(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {
  reset_parameters();
}

void Linear::reset_parameters() {
  const double bound = 1 / std::sqrt(double(options.in));
  uniform_(weight, -bound, bound);
  if (options.bias) uniform_(bias, -bound, bound);
}

Tensor Linear::operator()(const Tensor& x) const {
  const Tensor y = linear(x, weight, bias);
  return lora_ ? y + (*lora_)(x) : y;
}

void Linear::set_lora(LoraAdapter::Options lora) {
  lora.in = options.in;
  lora.out = options.out;
  lora_.reset();
  lora_ = std::make_unique<LoraAdapter>(*this, "lora", lora);
  lora_->to(weight.dtype()).to(weight.device());
  lora_->train(training());
}

void Linear::copy_settings(const Module& from) {
  lora_.reset();
  if (const LoraAdapter* other = static_cast<const Linear&>(from).lora()) set_lora(other->options);
}

Tensors packed_linear(const std::vector<const Linear*>& layers, const Tensor& x) {
  Tensors weights, biases, results;
  for (const Linear* layer : layers) {
    weights.push_back(layer->weight);
    biases.push_back(layer->bias);
  }
  if (std::none_of(layers.begin(), layers.end(), [](const Linear* l) { return l->lora(); }))
    return linear(x, weights, biases);
  for (const Linear* layer : layers) results.push_back((*layer)(x));
  return results;
}

std::string Linear::label() const {
  return str("Linear(", options.in, " → ", options.out, options.bias ? ")" : ", no bias)");
}

}  // namespace stretto::nn
