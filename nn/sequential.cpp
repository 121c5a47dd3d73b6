#include "nn/sequential.h"

namespace stretto::nn {

Sequential::Sequential(Options steps) : options(std::move(steps)) { make(); }

Sequential::Sequential(Module& parent, std::string name, Options steps)
    : Module(parent, std::move(name)), options(std::move(steps)) {
  make();
}

void Sequential::make() {
  for (const SequentialStep& step : options) {
    if (!step.make_) {
      calls_.push_back(step.function_);
      continue;
    }
    auto [module, call] = step.make_(*this, std::to_string(calls_.size()));
    modules_.push_back(std::move(module));
    calls_.push_back(std::move(call));
  }
}

Tensor Sequential::operator()(const Tensor& x) const {
  Tensor y = x;
  for (const SequentialStep::Function& call : calls_) y = call(y);
  return y;
}

}  // namespace stretto::nn
