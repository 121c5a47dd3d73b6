// The implementations of linear_attention(), which checks the arguments and chooses one. Internal
// to ops/ and nn/.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include <functional>
#include <string>

#include "linear_attention_terms.h"

namespace stretto {

/// The composed implementation: products of queries and keys, in differentiable ops. Unless `state`
/// is null, its sums stand for keys before all others, and are replaced by sums that include the
/// new keys (state->length is not changed). Unless `denominators` is null, Σ_j q_i·k_j + eps
/// [B, H, M] is written to it.
Tensor composed_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 LinearState* state, const LinearAttentionOptions& options,
                                 Tensor* denominators = nullptr);

/// The fused implementation on the CPU, in chunks, for any floating-point dtype. The arguments are
/// as above, but with a state no gradients may be recorded and `denominators` is not written. The
/// denominators have the dtype of the sums.
Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                LinearState* state, const LinearAttentionOptions& options,
                                Tensor* denominators = nullptr);

/// The same on a GPU, with gradients through the state.
Tensor device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               LinearState* state, const LinearAttentionOptions& options,
                               Tensor* denominators = nullptr);
/// True if there are GPU kernels for these arguments, which linear_attention() has checked.
/// `state` may be null.
bool has_device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const LinearState* state);

/// Reports a head whose `denominators` [B, H, M] all equal `eps`, unless there are no keys: if
/// n_keys = 0, or all keys are padding (key_padding is [B, N] or undefined). The error, text(head),
/// is thrown at the next synchronization with the GPU.
void report_dead_heads(const char* op, const Tensor& denominators, double eps, int64_t n_keys,
                       const Tensor& key_padding, std::function<std::string(int64_t)> text);

}  // namespace stretto
