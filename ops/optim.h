// What optimisers do to parameters, in place: one fused pass over each, in f64 for f64 weights,
// else in f32; on a GPU one over all of them. No gradients. The formulas as loops:
// tests/nn/optim/optim_test.cpp.
//
// The tensors of a task are contiguous, of one shape and on one device; the gradient has the
// weight's dtype, the rest the dtype of the computation. A bf16 weight has a master copy in f32,
// which counts unless the weight is no longer the master rounded: then it was set from outside.
#pragma once

#include <span>
#include <vector>

#include "../core/tensor.h"
#include "optim_math.h"

namespace stretto {

/// Stochastic gradient descent. All tasks are checked before the first is done; nothing is
/// allocated.
void sgd_steps(std::span<const SgdTask> tasks);

/// Adam and AdamW, the same.
void adam_steps(std::span<const AdamTask> tasks);

/// Σ x² of every norm_block elements, one after the other, of a contiguous tensor on the CPU:
/// what l2_norm adds up there, in this order, tensor by tensor.
constexpr int64_t norm_block = 32768;
std::vector<double> stretch_squares(const Tensor& x);

/// Of a tensor, its elements begin … end − 1 in the order of its shape.
struct ElementRange {
  int64_t begin = 0, end = 0;
  bool operator==(const ElementRange&) const = default;
};

/// √Σ x² over all elements of these tensors, of floating dtypes, summed in f64 in a fixed order:
/// f64, without dimensions, on the device of the first.
Tensor l2_norm(const Tensors& tensors);

/// Multiplies the tensors, of floating dtypes, by most / norm where the norm (f64, one number) is
/// finite and larger than that. On a GPU the host does not wait for the norm.
void clip_to_norm(const Tensors& tensors, const Tensor& norm, double most);

}  // namespace stretto
