// Encoders and decoders: layers of one kind, one after the other.
#pragma once

#include <optional>
#include <vector>

#include "transformer.h"

namespace stretto::nn {

struct StackOptions {
  int64_t n_layers = 0;  ///< At least 1.
  LayerOptions layer = {};
  bool final_norm = false;      ///< A norm after the last layer, as NormPlace::pre needs.
  bool share_position = false;  ///< One position for all layers, owned by the first (T5).
  bool final_dropout = false;   ///< Dropout on the output too (T5).
};

/// x [B, N, d_model] → the same.
class Encoder : public Module {
 public:
  explicit Encoder(StackOptions options);
  Encoder(Module& parent, std::string name, StackOptions options);
  Tensor operator()(const Tensor& x, const AttentionMask& visible = {},
                    const ForwardContext& forward = begin_forward()) const;
  std::string label() const override;

  const StackOptions options;
  List<TransformerLayer> layers;
  std::optional<Norm> norm;  // if final_norm
  Dropout dropout{*this, "dropout", {options.final_dropout ? options.layer.dropout : 0}};
};

/// x [B, M, d_model], context [B, N, d_model] → [B, M, d_model]. With a cache (one entry per layer)
/// x continues the positions in it, and only the first call looks at the context.
class Decoder : public Module {
 public:
  explicit Decoder(StackOptions options);
  Decoder(Module& parent, std::string name, StackOptions options);
  Tensor operator()(const Tensor& x, const Tensor& context,
                    const AttentionMask& self = {.causal = true}, const AttentionMask& cross = {},
                    std::vector<DecoderCache>* cache = nullptr,
                    const ForwardContext& forward = begin_forward()) const;
  std::string label() const override;

  const StackOptions options;
  List<DecoderLayer> layers;
  std::optional<Norm> norm;
  Dropout dropout{*this, "dropout", {options.final_dropout ? options.layer.dropout : 0}};
};

}  // namespace stretto::nn
