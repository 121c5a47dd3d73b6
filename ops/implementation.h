// How an op with more than one implementation is computed.
#pragma once

namespace stretto {

/// `composed` is the formula in differentiable ops, on any device; `fused` is one kernel that keeps
/// less in memory; `automatic` is fused wherever there is such a kernel for the arguments. A fused
/// op's gradient is composed where it is recorded; ops that cannot be differentiated again say so.
enum class Implementation { automatic, composed, fused };

}  // namespace stretto
