// The chunked form of linear attention on a GPU. Internal to ops/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "linear_attention_terms.h"

namespace stretto {

/// Whether there are kernels for these arguments, which linear_attention() has checked. `state` may
/// be null.
bool has_device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const LinearState* state);

/// Like chunked_linear_attention(); gradients go through the state, too, and
/// `denominators` stays as it is.
Tensor device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               LinearState* state, const LinearAttentionOptions& options,
                               Tensor* denominators = nullptr);

}  // namespace stretto
