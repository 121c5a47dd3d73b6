// Mamba-2's mixer (Dao & Gu 2024), which takes the place of attention in a layer:
// `.mixer = nn::mamba2()`.
//
// Reference: tests/reference/gated_layers.cpp, mamba2()
#pragma once

#include "../linear.h"
#include "../norm.h"
#include "gated_linear_attention.h"
#include "mixer.h"

namespace stretto::nn {

/// Options of Mamba2. Names in flash-linear-attention and transformers are in brackets.
struct Mamba2Options {
  int64_t d_model = 0;     ///< Dimension of input and output, at least 1; 0 for mamba2().
  int64_t expand = 2;      ///< H·P is expand · d_model.
  int64_t d_head = 64;     ///< P, values per head (head_dim); must divide expand · d_model.
  int64_t d_state = 128;   ///< F, the dimension of queries and keys (state_size).
  int64_t n_groups = 1;    ///< G, heads of queries and keys; must divide H.
  int64_t taps = 4;        ///< Length of the short convolution (conv_kernel).
  double norm_eps = 1e-5;  ///< ε of the norm.
  int64_t chunk = 64;      ///< GatedLinearAttentionOptions::chunk.
};

/// Selective state space, as linear attention with one decay per token: with Δ = softplus(dt + b),
///
///     z, (x, B, C), dt = in(input)       (x, B, C) = convolution(x, B, C)
///     S_t = e^(−e^a Δ_t) S_{t−1} + B_t (Δ_t x_t)ᵀ       y_t = C_t S_t + D x_t
///     output = out(norm(y ∘ silu(z)))
///
/// C are the queries, B the keys. The norm is an RMS norm over the features of each group.
class Mamba2 : public Mixer {
 public:
  using Options = Mamba2Options;  ///< Options of the constructor.
  /// Constructs a root module. Throws if the sizes do not fit together.
  explicit Mamba2(Options options);
  /// Constructs a child of `parent`. Throws if the sizes do not fit together.
  Mamba2(Module& parent, std::string name, Options options);

  MixerTraits traits() const override {
    return {.cache = true, .key_padding = true, .segments = true};
  }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// Returns H·P, the number of values.
  int64_t d_inner() const { return options.expand * options.d_model; }
  /// Returns H, the number of heads.
  int64_t n_heads() const { return d_inner() / options.d_head; }

  /// d_model → z, x, B, C and dt.
  Linear in{
      *this,
      "in",
      {options.d_model, 2 * d_inner() + 2 * options.n_groups* options.d_state + n_heads(), false}};
  /// Convolution of x, B and C.
  ShortConvolution convolution{*this,
                               "convolution",
                               {.features = d_inner() + 2 * options.n_groups * options.d_state,
                                .taps = options.taps,
                                .bias = true}};
  const Tensor a = parameter("a", zeros({n_heads()}));            ///< Logarithm of the rates [H].
  const Tensor b = parameter("b", zeros({n_heads()}));            ///< Bias of dt [H].
  const Tensor skip = parameter("skip", ones({n_heads()}));       ///< D [H].
  const Tensor norm = parameter("norm", ones({d_inner()}));       ///< Weight of the norm [H·P].
  Linear out{*this, "out", {d_inner(), options.d_model, false}};  ///< H·P → d_model.

 protected:
  Tensor mix(const Tensor& x, const AttentionMask& mask, KeyValueCache* cache,
             const ForwardContext& forward) const override;

 private:
  static Options checked(Options options);
};

/// Returns a factory of Mamba2; d_model is the layer's.
MakeMixer mamba2(Mamba2Options options = {});

}  // namespace stretto::nn
