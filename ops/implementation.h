// How an op with more than one implementation is computed.
#pragma once

namespace stretto {

/// The implementation of an op: `composed` is the formula in differentiable ops, on any device;
/// `fused` is one kernel that uses less memory; `automatic` (the default) is fused if there is a
/// kernel for the arguments, else composed.
///
/// The gradient of a fused op is itself composed when it is recorded (create_graph); ops that
/// cannot be differentiated twice say so.
enum class Implementation { automatic, composed, fused };

}  // namespace stretto
