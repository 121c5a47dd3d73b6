// The implementations of linear_attention(), which checks the arguments and chooses one. Internal
// to ops/ and nn/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include <functional>
#include <string>

#include "linear_attention_terms.h"

namespace stretto {

/// Products of queries and keys, in differentiable ops. `state` may be null; else its sums come
/// before all keys, and new ones with those keys take their place (its length is left alone). Puts
/// Σ_j q_i·k_j + eps [B, H, M] into `denominators` unless it is null.
Tensor composed_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 LinearState* state, const LinearAttentionOptions& options,
                                 Tensor* denominators = nullptr);

/// The fused form on the CPU, in chunks, of any floating dtype: as above, but with a state nothing
/// may be recorded and no denominators are given. These are in the dtype of sums.
Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                LinearState* state, const LinearAttentionOptions& options,
                                Tensor* denominators = nullptr);

/// The same on a GPU; gradients go through the state, too.
Tensor device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               LinearState* state, const LinearAttentionOptions& options,
                               Tensor* denominators = nullptr);
/// Whether there are kernels for these arguments, which linear_attention() has checked. `state` may
/// be null.
bool has_device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const LinearState* state);

/// Reports a head whose `denominators` [B, H, M] are all `eps`, unless there are no keys (n_keys 0,
/// or all of them padding; key_padding [B, N] or undefined). The error, text(head), is thrown at
/// the next synchronization with the GPU.
void report_dead_heads(const char* op, const Tensor& denominators, double eps, int64_t n_keys,
                       const Tensor& key_padding, std::function<std::string(int64_t)> text);

}  // namespace stretto
