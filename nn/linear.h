// A linear layer.
#pragma once

#include "module.h"

namespace stretto::nn {

/// Options of Linear.
struct LinearOptions {
  int64_t in = 0;    ///< Number of input features, at least 1.
  int64_t out = 0;   ///< Number of output features, at least 1.
  bool bias = true;  ///< Adds a bias.
};

/// A linear layer, x · weightᵀ + bias.
class Linear : public Module {
 public:
  using Options = LinearOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1.
  explicit Linear(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  Linear(Module& parent, std::string name, Options options);

  /// x [.., in] → [.., out].
  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [out, in], initially uniform in ±1/√in, as in PyTorch.
  const Tensor weight = parameter("weight", empty({options.out, options.in}));
  /// [out], initially uniform in ±1/√in; undefined without a bias.
  const Tensor bias = options.bias ? parameter("bias", empty({options.out})) : Tensor();

 private:
  void reset_parameters();
};

}  // namespace stretto::nn
