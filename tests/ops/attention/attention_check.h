// Attention on a device and in a dtype against the composed implementation with the same inputs in
// f64 on the CPU, forward and backward.
#pragma once

#include <functional>

#include "tests/ops/attention/attention_setup.h"

namespace stretto::testing {

/// Returns the same inputs on another device and in another dtype, as leaves.
AttentionCase moved(const AttentionCase& in, Device device, DType type);

/// Returns the output and the gradients of all leaves.
Tensors output_and_gradients(const AttentionCase& in, Implementation implementation);

struct Difference {
  double size, worst;  // relative to the norm and to the largest element of the expected tensor
};
/// If almost nothing is expected, as for scores that cannot change, terms of size `least` cancel.
Difference difference(const Tensor& got, const Tensor& want, double least = 0.4);

/// Checks the fused implementation on the device: the output, all gradients, and for one sequence
/// that a second run is bit-identical. change(options) replaces options of the setup on the CPU.
void check_fused(const AttentionSetup& s, Device device, DType type,
                 const std::function<void(AttentionOptions&)>& change = {});

}  // namespace stretto::testing
