// The streamed form of stochastic positional encoding, and kept codes. Internal to ops/.
//
// Reference: tests/reference/spe.cpp, encoded()
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "ops/spe/spe_source.h"

namespace stretto {

/// One side of a call: what is encoded, [B, H, n, D], and the position of its first row.
struct SpeOperand {
  Tensor x;
  int64_t at = 0;
};

/// What the gate makes of [H, D] numbers: the factors √(1−δ) of the code, and the rows
/// √δ ε (RD)^(−¼) [H, D, R] that join it at every position. Both undefined without a gate.
struct SpeGateTerms {
  Tensor factors, rows;
};

/// Codes kept for several calls. On the CPU they are off the tape, and what each call's backward
/// leaves behind waits here for the last; elsewhere they are ordinary composed tensors. On the CPU
/// some heads' codes of queries may be left out: each call makes them anew from `inputs`.
class KeptCodes {
 public:
  /// One side of one call, after its backward: codes get the gradient Σ_b factors·x g.
  struct Pending {
    SpeOperand operand;
    SpeSide side;
    Tensor factors, grad;
  };
  Tensor codes[2];  // [H, D, length, R], queries and keys; of queries `query_heads` instead of H
  int64_t query_heads = 0;
  Tensors inputs;                 // SpeSource::inputs, off the tape
  int64_t first = 0, length = 0;  // positions first … first + length − 1
  std::vector<Pending> pending;

  int64_t end() const { return first + length; }

  /// Where a head's code is in `codes`; −1 where it was not kept. Heads that were are spread
  /// evenly.
  int64_t place(SpeSide side, int64_t h) const {
    if (side == SpeSide::key) return h;
    const int64_t heads = codes[1].size(0), before = h * query_heads / heads;
    return (h + 1) * query_heads / heads > before ? before : -1;
  }
};

/// Arguments are checked by spe(), on the CPU, f32 or f64.
SpePair streamed_spe(const SpeOperand& q, const SpeOperand& k, const SpeCode& code,
                     const SpeGateTerms& gate);

/// Codes of positions first … first + length − 1, and the handle that their gradients flow through.
SpeCode keep_on_cpu(const SpeCode& code, int64_t first, int64_t length, double queries,
                    DType dtype);

}  // namespace stretto
