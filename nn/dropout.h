// Dropout as a module: it follows the training mode.
#pragma once

#include "forward_context.h"
#include "module.h"

namespace stretto::nn {

struct DropoutOptions {
  double p = 0.1;
};

/// In training, each element is zeroed with probability p and the rest scaled by 1 / (1 − p), with
/// a fresh draw per call; in evaluation x itself (Srivastava et al., 2014). Each process of a
/// sequence group draws other numbers.
class Dropout : public Module {
 public:
  using Options = DropoutOptions;
  explicit Dropout(Options options);
  Dropout(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const;
  /// Returns residual + operator()(x), in one pass: the arguments are in the order of dropout_add
  /// (ops/dropout.h).
  Tensor add(const Tensor& x, const Tensor& residual, const ForwardContext& forward = {}) const;
  std::string label() const override;

  const Options options;
};

}  // namespace stretto::nn
