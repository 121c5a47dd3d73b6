// Matrix products.
#pragma once

#include <string>

#include "../core/tensor.h"

namespace stretto {

/// Computes a [.., M, K] · b [.., K, N] → [.., M, N].
///
/// A 1-d operand is treated as a row (a) or a column (b), and its dimension is dropped from the
/// result. Leading dimensions broadcast. K = 0 gives zeros. Both have the same floating-point
/// dtype; bf16 products are summed in f32.
Tensor matmul(const Tensor& a, const Tensor& b);

/// Computes x [.., in] · weightᵀ + bias → [.., out], with weight [out, in] and bias [out] or
/// undefined, all of one floating-point dtype; bf16 products are summed in f32.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// Computes several linear layers of one input: linear(x, weights[i], biases[i]) for all i. On CUDA
/// this is one product if the weights lie in one block of memory (nn::Module::pack_parameters()), and
/// the biases too; all or none have one. The results are then views of one block, [.., Σ out_i].
Tensors linear(const Tensor& x, const Tensors& weights, const Tensors& biases);

/// Computes a sum of products in Einstein's notation: `einsum("bhmd,bhnd->bhmn", {q, k})`.
///
/// A letter names a dimension of each operand; letters that are not in the result are summed over.
/// A letter twice in one operand means its diagonal; "..." means further dimensions, which
/// broadcast. Without "->", the result has "..." and the letters that occur once, in alphabetical
/// order. A dimension of size 1 broadcasts. All operands have the same floating-point dtype.
/// Operands are contracted from left to right, each pair by one matmul.
Tensor einsum(const std::string& equation, const Tensors& operands);

}  // namespace stretto
