// Encoders and decoders: stacks of layers.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "transformer.h"

namespace stretto::nn {

/// Options of Encoder and Decoder.
struct StackOptions {
  int64_t n_layers = 0;     ///< Number of layers, at least 1.
  LayerOptions layer = {};  ///< Options of every layer.
  /// Changes the options of layer i, as LanguageModelOptions::vary_layer.
  std::function<void(int64_t i, LayerOptions&)> vary_layer = {};
  bool final_norm = false;     ///< Adds a norm after the last layer, as NormPlace::pre needs.
  bool final_dropout = false;  ///< Dropout of the output too (T5).
};

/// A stack of TransformerLayers.
class Encoder : public Module {
 public:
  /// Constructs a root module. Throws if n_layers is below 1.
  explicit Encoder(StackOptions options);
  /// Constructs a child of `parent`. Throws if n_layers is below 1.
  Encoder(Module& parent, std::string name, StackOptions options);
  /// x [B, N, d_model] → [B, N, d_model].
  Tensor operator()(const Tensor& x, const AttentionMask& mask = {},
                    const ForwardContext& forward = begin_forward()) const;
  std::string label() const override;

  const StackOptions options;     ///< As passed to the constructor.
  List<TransformerLayer> layers;  ///< The layers.
  std::optional<Norm> norm;       ///< Norm of the output, with final_norm.
  /// Dropout of the output, with final_dropout.
  Dropout dropout{*this, "dropout", {options.final_dropout ? options.layer.dropout : 0}};
};

/// A stack of DecoderLayers.
class Decoder : public Module {
 public:
  /// Constructs a root module. Throws if n_layers is below 1.
  explicit Decoder(StackOptions options);
  /// Constructs a child of `parent`. Throws if n_layers is below 1.
  Decoder(Module& parent, std::string name, StackOptions options);
  /// x [B, M, d_model], context [B, N, d_model] → [B, M, d_model]. With a cache (empty, or one
  /// entry per layer), x continues the positions in it, and only the first call uses the context.
  Tensor operator()(const Tensor& x, const Tensor& context,
                    const AttentionMask& self = {.causal = true}, const AttentionMask& cross = {},
                    std::vector<DecoderCache>* cache = nullptr,
                    const ForwardContext& forward = begin_forward()) const;
  std::string label() const override;

  const StackOptions options;  ///< As passed to the constructor.
  List<DecoderLayer> layers;   ///< The layers.
  std::optional<Norm> norm;    ///< Norm of the output, with final_norm.
  /// Dropout of the output, with final_dropout.
  Dropout dropout{*this, "dropout", {options.final_dropout ? options.layer.dropout : 0}};
};

}  // namespace stretto::nn
