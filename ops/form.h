// How an op with more than one implementation is computed.
#pragma once

namespace stretto {

/// `composed` is the formula in differentiable ops, on any device; `fused` is one kernel that keeps
/// less in memory; `automatic` is fused wherever there is such a kernel for the arguments. All can
/// be differentiated any number of times: a fused op is composed where its backward is recorded.
enum class Form { automatic, composed, fused };

}  // namespace stretto
