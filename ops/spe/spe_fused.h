// The kernels of fused stochastic positional encoding. Internal to ops/.
//
// Reference: tests/reference/spe.cpp, encoded()
#pragma once

#include "spe_source.h"

namespace stretto {

/// One side of a call, off the tape, rows contiguous.
struct SpeOperand {
  Tensor x;        // [B, H, n, D]
  int64_t at = 0;  // position of its first row
  Tensor y = {};   // [B, H, n, R]: the result; backward its gradient. Undefined: not wanted
  Tensor dx = {};  // written where defined
  SpeSpan span() const { return {at, at + x.size(2)}; }
};

/// A call. What its gate makes of its numbers is undefined without one.
struct SpeCall {
  SpeOperand sides[2];
  Tensor factors = {};                 // √(1−δ) of the code, [H, D]
  Tensor rows = {};                    // √δ ε (RD)^(−¼), which join it everywhere, [H, D, R]
  Tensor d_factors = {}, d_rows = {};  // added to where defined; d_factors is f64
  SpeSpan span() const { return sides[0].span() | sides[1].span(); }
};

/// The results y. `inputs` are those of the source, contiguous and off the tape, f32 or f64; in f32
/// operands and results may be bf16.
void spe_forward(const SpeSource& s, const Tensors& inputs, const SpeCall& call);

/// What is defined of the calls' gradients. `gradients`, zeroed, get those of the inputs, summed
/// over the calls; none where there are none.
void spe_backward(const SpeSource& s, const Tensors& inputs, std::vector<SpeCall> calls,
                  const Tensors& gradients);

/// (16, 17): x [B, H, n, D], a code [H, D, n, R] → [B, H, n, R], differentiable.
Tensor spe_encoded(const Tensor& x, const Tensor& code);

/// Contiguous and off the tape; zeros of their shapes.
Tensors plain_tensors(const Tensors& tensors);
Tensors zeros_of(const Tensors& tensors);

}  // namespace stretto
