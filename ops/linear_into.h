// A linear layer into memory that exists. Internal to ops/.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Writes x [.., in] · weightᵀ + bias to y [.., out], contiguous, on the CPU; not recorded. weight
/// is [out, in] with any strides, bias [out] or undefined, all of one floating-point dtype. bf16 is
/// rounded once, after the bias.
void linear_into(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace stretto
