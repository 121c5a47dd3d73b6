// A layer of Transformer-XL: it also attends to a memory of what it saw before.
//
// Reference: tests/reference/transformer_xl.cpp, xl_layer()
#pragma once

#include "../transformer.h"

namespace stretto::nn {

/// Dai et al. 2019, §3.2: queries from x, keys and values from [memory; x]. x [B, L, d_model] →
/// the same; memory [B, m, d_model], earlier inputs of this layer, gets no gradient, but gives some
/// to the projections of keys and values. With NormPlace::pre the norm applies to memory and x: a
/// memory is kept without norm.
class TransformerXLLayer : public TransformerLayer {
 public:
  using TransformerLayer::TransformerLayer;
  /// `memory` may be undefined. The first row of [memory; x] is at forward.first_position.
  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionMask& visible,
                    const ForwardContext& forward = {}) const;
  std::string label() const override;
};

}  // namespace stretto::nn
