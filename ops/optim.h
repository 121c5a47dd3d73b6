// Optimizer steps on parameters, in place: one fused loop per parameter, or on a GPU one kernel for
// all parameters. Computed in f64 for f64 weights, else in f32. Steps are not differentiable. The
// formulas as loops are in tests/nn/optim/optim_test.cpp.
//
// The tensors of a task are contiguous, of one shape and on one device. The gradient has the
// weight's dtype, the other tensors have the dtype of the computation. A bf16 weight has a master
// copy in f32. If the weight differs from the rounded master, it was changed outside the optimizer,
// and the master is reset from it.
#pragma once

#include <span>
#include <vector>

#include "../core/formulas/optim_math.h"
#include "../core/tensor.h"

namespace stretto {

/// Performs steps of stochastic gradient descent. Either all steps are done or none: all tasks are
/// checked before the first step, and nothing is allocated.
void sgd_steps(std::span<const SgdTask> tasks);

/// Performs steps of Adam or AdamW, in the same way.
void adam_steps(std::span<const AdamTask> tasks);

/// The number of elements whose squares block_squares() sums together.
constexpr int64_t norm_block = 32768;
/// Returns Σ x² of each block of norm_block elements of a contiguous tensor on the CPU. l2_norm
/// adds these sums in this order, tensor by tensor.
std::vector<double> block_squares(const Tensor& x);

/// Elements begin … end − 1 of a tensor in row-major order.
struct ElementRange {
  int64_t begin = 0;  ///< The first element.
  int64_t end = 0;    ///< One past the last element.
  bool operator==(const ElementRange&) const = default;
};

/// Returns √Σ x² over all elements of tensors of floating-point dtypes, summed in f64 in a fixed
/// order: f64, 0-d, on the device of the first tensor.
Tensor l2_norm(const Tensors& tensors);

/// Multiplies tensors of floating-point dtypes by most / norm if the norm (f64, one element) is
/// finite and larger than `most`. Does not synchronize with a GPU.
void clip_to_norm(const Tensors& tensors, const Tensor& norm, double most);

}  // namespace stretto
