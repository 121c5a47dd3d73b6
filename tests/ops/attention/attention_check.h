// Attention of a device and a type against the composed form of the same numbers in f64 on the CPU,
// forwards and backwards.
#pragma once

#include "tests/ops/attention/attention_setup.h"

namespace stretto::testing {

/// The same call elsewhere, in another type; leaves.
AttentionCase moved(const AttentionCase& in, Device device, DType type);

/// The output, and the gradients of all leaves.
Tensors output_and_gradients(const AttentionCase& in, Implementation implementation);

struct Difference {
  double size, worst;  // over the size and the largest of what is wanted
};
/// Where hardly anything is wanted, as of scores that cannot change, terms of size `least` cancel.
Difference difference(const Tensor& got, const Tensor& want, double least = 0.4);

/// Checks the fused form on the device: the output and all gradients, and for one sequence that
/// another time has the same bits.
void check_fused(const AttentionSetup& s, Device device, DType type);

}  // namespace stretto::testing
