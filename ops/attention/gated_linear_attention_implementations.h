// The implementations of gated_linear_attention(), which checks the arguments, converts them and
// chooses one. Internal to ops/.
//
// Reference: tests/reference/gated_linear_attention.cpp, gated_linear_attention()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// The inputs of an implementation, all f32 or all f64.
struct GatedLinearOperands {
  Tensor q;          ///< Queries [B, ·, N, F], with as many positions as keys.
  Tensor k;          ///< Keys [B, ·, N, F].
  Tensor v;          ///< Values [B, ·, N, Dv].
  Tensor log_decay;  ///< [B, H, N] or [B, H, N, F].
  Tensor before;     ///< State before the first position [B, H, F, Dv].
  Tensor beta;       ///< [B, H, N]; undefined without the delta rule.
  double scale;      ///< Factor of the outputs.
  int64_t chunk;     ///< Positions per chunk.

  /// Returns the tensors, in the order of the members.
  Tensors tensors() const;
  /// Returns the same settings with other tensors.
  GatedLinearOperands with(const Tensors& tensors) const;
};

/// Output [B, H, N, Dv] and state after the last position [B, H, F, Dv].
struct GatedLinearResult {
  Tensor out;    ///< Output.
  Tensor after;  ///< State.
};

/// The composed implementation: chunks of differentiable ops, on any device.
GatedLinearResult composed_gated_linear_attention(const GatedLinearOperands& in);

/// The fused implementation: on the CPU, and in f32 on a GPU, where chunks have 64 positions.
bool has_chunked_gated_linear_attention(const GatedLinearOperands& in);
GatedLinearResult chunked_gated_linear_attention(const GatedLinearOperands& in);

}  // namespace stretto
