// The chunked form of linear attention on a GPU. Internal to ops/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include <functional>
#include <string>

#include "linear_attention_terms.h"

namespace stretto {

/// Whether there are kernels for these arguments, which linear_attention() has checked. `state` may
/// be null.
bool has_device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const LinearState* state);

/// Like chunked_linear_attention(); gradients go through the state, too.
Tensor device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               LinearState* state, const LinearAttentionOptions& options,
                               Tensor* denominators = nullptr);

/// Reports a head whose `denominators` [B, H, M] are all `eps`, unless there are no keys (n_keys 0,
/// or all of them padding; key_padding [B, N] or undefined). The error, text(head), is thrown at
/// the next synchronization with the GPU.
void report_dead_heads(const char* op, const Tensor& denominators, double eps, int64_t n_keys,
                       const Tensor& key_padding, std::function<std::string(int64_t)> text);

}  // namespace stretto
