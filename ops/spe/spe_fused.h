// The kernels of fused stochastic positional encoding. Internal to ops/.
//
// Reference: tests/reference/spe.cpp, encoded()
#pragma once

#include "spe_source.h"

namespace stretto {

/// The queries or the keys of one spe(), detached, with contiguous rows.
struct SpeOperand {
  Tensor x;        ///< [B, H, n, D].
  int64_t at = 0;  ///< Position of the first row.
  /// [B, H, n, R]: the result, or in the backward pass its gradient. Undefined if not needed.
  Tensor y = {};
  Tensor dx = {};  ///< Gradient of x, written if defined.
  SpeSpan span() const { return {at, at + x.size(2)}; }
};

/// The tensors of one spe(). The tensors of the gate are undefined without a gate.
struct SpeCall {
  SpeOperand sides[2];
  Tensor factors = {};  ///< √(1−δ), multiplies the code, [H, D].
  Tensor rows = {};     ///< √δ ε (RD)^(−¼), added to the code at every position, [H, D, R].
  Tensor d_factors = {};  ///< Gradient of factors, f64, accumulated if defined.
  Tensor d_rows = {};     ///< Gradient of rows, accumulated if defined.
  SpeSpan span() const { return sides[0].span() | sides[1].span(); }
};

/// Computes the results y. `inputs` are the inputs of the source (SpeSource::inputs), contiguous
/// and detached, f32 or f64. If they are f32, operands and results may be bf16.
void spe_forward(const SpeSource& s, const Tensors& inputs, const SpeCall& call);

/// Computes the defined gradients of `calls`. The gradients of the inputs, summed over the calls,
/// are added to `gradients`: tensors of zeros, or no tensors if these gradients are not needed.
void spe_backward(const SpeSource& s, const Tensors& inputs, std::vector<SpeCall> calls,
                  const Tensors& gradients);

/// Computes (16, 17) for x [B, H, n, D] and a code [H, D, n, R] → [B, H, n, R]; differentiable.
Tensor spe_encoded(const Tensor& x, const Tensor& code);

/// Returns the tensors contiguous and detached.
Tensors plain_tensors(const Tensors& tensors);
/// Returns zeros of the shapes of `tensors`.
Tensors zeros_of(const Tensors& tensors);

}  // namespace stretto
