// How an op that has more than one implementation is computed.
#pragma once

namespace stretto {

/// `composed`: as the papers write it, by differentiable ops, with whatever intermediate results
/// that takes. `fused`: by kernels of its own that never hold those. `automatic`: fused wherever
/// that covers the arguments.
enum class Form { automatic, composed, fused };

}  // namespace stretto
