// A linear layer.
#pragma once

#include "module.h"

namespace stretto::nn {

struct LinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
};

/// x [.., in] → x · weightᵀ + bias [.., out]; weight [out, in], bias [out]. Both start uniform in
/// ±1/√in, as in PyTorch.
class Linear : public Module {
 public:
  using Options = LinearOptions;
  explicit Linear(Options options);
  Linear(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;
  const Tensor weight = parameter("weight", empty({options.out, options.in}));
  const Tensor bias =  // undefined without
      options.bias ? parameter("bias", empty({options.out})) : Tensor();

 private:
  void reset_parameters();
};

}  // namespace stretto::nn
