// A layer of Transformer-XL, which also attends to a memory of earlier inputs.
//
// Reference: tests/reference/transformer_xl.cpp, xl_layer()
#pragma once

#include "../transformer.h"

namespace stretto::nn {

/// A TransformerLayer with queries from x and keys and values from [memory; x]
/// (Dai et al. 2019, §3.2).
///
/// The memory [B, m, d_model], earlier inputs of this layer, receives no gradient, but contributes
/// to the gradients of the key and value projections. Unless NormPlace::post, the norm is applied
/// to memory and x; memories are stored before the norm.
class TransformerXLLayer : public TransformerLayer {
 public:
  using TransformerLayer::TransformerLayer;
  /// x [B, L, d_model], memory [B, m, d_model] or undefined → [B, L, d_model]. The first row of
  /// [memory; x] is at forward.first_position. Throws as MultiHeadAttention::attend().
  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionMask& mask,
                    const ForwardContext& forward = {}) const;
  std::string label() const override;
};

}  // namespace stretto::nn
