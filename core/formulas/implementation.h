// The choice between the implementations of an op.
#pragma once

namespace stretto {

/// The implementation of an op: `composed` is the formula in differentiable ops, on any device;
/// `fused` is one kernel that uses less memory; `automatic` (the default) is fused if there is a
/// kernel for the arguments, with the exceptions that the op's comment names, else composed. If
/// there is no kernel, `fused` throws, except in attention(), which is then composed.
///
/// If the backward pass is recorded (create_graph), the gradient of a fused op is computed by the
/// composed implementation. The comments of ops that cannot be differentiated twice mention it.
enum class Implementation { automatic, composed, fused };

}  // namespace stretto
