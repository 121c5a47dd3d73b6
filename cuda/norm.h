// Layer norm and RMS norm on the device; contiguous, f32, f64 or bf16.
#pragma once

#include "../core/random.h"
#include "runtime/kernel.h"

namespace stretto::cuda {

/// A row whose squared mean exceeds this multiple of its variance (+ eps) is normalized with its
/// mean in two parts: the rounding error of a single part would be visible in x̂.
inline constexpr int far_mean = 256;

/// A residual branch x, which is added to `onto` with dropout: the norm is that of `sum` = onto +
/// dropout(x), rounded once and written too.
/// Element i of the branch is dropped if its random number is below `below` (0: no dropout).
struct ResidualBranch {
  Tensor onto, sum;  ///< [.., D] as x; sum contiguous; undefined: no branch.
  uint32_t below = 0;
  double factor = 1;
  RandomKey key;
};

/// y = ((x − shift) − rest) · scale · weight + bias for rows of x [.., D]. Writes scale [N] =
/// 1/√(mean ((x − shift) − rest)² + eps), and, if `means` [2, N] is defined, shift and rest to it:
/// the row's mean and its rounding error, 0 unless the mean is large (far_mean). Both in f32 (f64
/// for f64). weight and bias [D] may be undefined. A branch requires norm_takes_branch().
STRETTO_KERNEL(Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           const Tensor& means, const Tensor& scale,
                           const ResidualBranch& branch = {}));
/// What the backward pass reads of norm(): its x and weight, and the means and scale it wrote.
struct NormSaved {
  Tensor x, weight, means, scale;
};
struct NormGradients {
  Tensor dx, dw, db;
};
/// dx from the gradient g of y, plus `onto` [.., D] unless it is undefined; dw = Σ g·x̂ and
/// db = Σ g, both [D], if they are wanted. For an x that was a branch's sum, writes the gradient of
/// the branch, dropout(dx), to branch.sum if that is defined.
STRETTO_KERNEL(NormGradients norm_backward(const NormSaved& saved, const Tensor& g,
                                           const Tensor& onto, bool want_dw, bool want_db,
                                           const ResidualBranch& branch = {}));
/// True if norm() and norm_backward() support a branch: rows of `width` elements fit in registers, in
/// packs of at least four elements.
STRETTO_KERNEL(bool norm_takes_branch(int64_t width, DType dtype));

}  // namespace stretto::cuda
