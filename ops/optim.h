// What optimisers do to one parameter, in place: one fused pass, in f64 for f64 weights, else in
// f32. No gradients. The formulas as loops: tests/nn/training/optim_test.cpp.
//
// All tensors are contiguous, of one shape and on one device; the gradient has the weight's dtype,
// the rest the dtype of the computation. A bf16 weight has a master copy in f32, which counts
// unless the weight is no longer the master rounded: then it was set from outside.
#pragma once

#include "core/tensor.h"
#include "ops/optim_math.h"

namespace stretto {

/// Stochastic gradient descent; `momentum` is undefined where there is none, `master` unless the
/// weight is bf16.
void sgd_step(const Tensor& weight, const Tensor& gradient, const Tensor& master,
              const Tensor& momentum, const SgdStep& step);

/// Adam and AdamW; `v_max` is undefined without amsgrad.
void adam_step(const Tensor& weight, const Tensor& gradient, const Tensor& master, const Tensor& m,
               const Tensor& v, const Tensor& v_max, const AdamStep& step);

/// √Σ x² over all elements of these tensors, of floating dtypes, in f64 in a fixed order.
double l2_norm(const Tensors& tensors);

}  // namespace stretto
