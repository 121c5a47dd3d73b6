// Linear attention with decay as a kernel of MultiHeadAttention: gates from the layer's input, then
// ops/attention/gated_linear_attention.h.
//
//     nn::MultiHeadAttention attention{*this, "attention",
//         {.d_model = 256, .n_heads = 4, .bias = false, .kernel = nn::gated_delta_kernel()}};
//
//   retention_kernel     RetNet (Sun et al. 2023), with RoPE as the positional encoding
//   lightning_kernel     Lightning Attention-2 and MiniMax-01 (Qin et al. 2024; MiniMax 2025)
//   gla_kernel           Gated Linear Attention (Yang et al. 2023)
//   delta_kernel         DeltaNet (Yang et al. 2024)
//   gated_delta_kernel   Gated DeltaNet (Yang et al. 2024; Qwen3-Next)
//   kda_kernel           Kimi Delta Attention (Kimi Team 2025)
//
// Layers with the sizes of the papers are in nn/models/gated_layers.h. A KeyValueCache holds a
// state of fixed size.
//
// Reference: tests/reference/gated_layers.cpp, gated_linear_layer()
#pragma once

#include "../../ops/create.h"
#include "attention.h"
#include "short_convolution.h"

namespace stretto::nn {

/// The decay of the state of a GatedLinearKernel, for head h = 0 … H − 1 of the output.
enum class StateDecay {
  none,       ///< The state never forgets.
  retention,  ///< α = 1 − 2^(−5 − h), as in RetNet.
  slopes,  ///< log α = −alibi_slopes(H)[h], as in the code of Lightning Attention and MiniMax-01.
  token,   ///< log α_t = −e^a softplus(x_t·w + b), one per token and head, as in Mamba-2.
  feature,  ///< log α_t = log σ(x_t·W₁·W₂ + b) / 16, one per feature too, as in GLA.
  kda  ///< log α_t = −e^a softplus(x_t·W₁·W₂ + b), one per feature too; a is one per head.
};

/// The gate of the output of a GatedLinearKernel.
enum class OutputGate {
  none,     ///< No gate.
  silu,     ///< y ∘ silu(x·W).
  sigmoid,  ///< y ∘ σ(x·W).
  low_rank  ///< y ∘ σ(x·W₁·W₂), as in KDA.
};

/// Options of GatedLinearKernel.
struct GatedLinearKernelOptions {
  StateDecay decay = StateDecay::none;  ///< Decay of the state.
  double rate = 1;  ///< Factor of log α of StateDecay::slopes. MiniMax-01: 1 − l / (L − 1) + 1e-5.
  /// The delta rule: β_t = σ(x_t·w), and queries and keys are divided by their norm.
  bool delta = false;
  /// β_t = 2 σ(x_t·w), so that the state's transition may have negative eigenvalues (Grazzi et al.
  /// 2024).
  bool negative_eigenvalues = false;
  int64_t taps = 0;                    ///< > 0: a ShortConvolution of q, k and v.
  bool silu = false;                   ///< Without a ShortConvolution: SiLU of q, k and v.
  NormKind norm = NormKind::rms;       ///< Norm of each head's output, with one weight for all.
  double norm_eps = 1e-5;              ///< ε of the norm.
  OutputGate gate = OutputGate::silu;  ///< Gate of the output, after the norm.
  int64_t gate_rank = 16;              ///< Columns of W₁ of decay and gate; 0: Dv.
  int64_t chunk = 64;                  ///< GatedLinearAttentionOptions::chunk.
  /// Implementation of gated_linear_attention().
  Implementation implementation = Implementation::automatic;
};

/// Linear attention with decay, a norm per head and an output gate. For self-attention only.
///
/// Accepts the masks causal, key_padding and segments, a scale, and encodings of q and k (RoPE,
/// SPE). Without a causal mask, y is the sum of two causal passes, one over the reversed sequence;
/// a position's own key and value count in both. The gates are computed in at least f32.
class GatedLinearKernel : public AttentionKernel {
 public:
  using Options = GatedLinearKernelOptions;  ///< Options of the constructor.
  /// Registers the parameters of the gates. Throws if an option is out of its range.
  GatedLinearKernel(Module& parent, HeadShape shape, Options options);
  /// Returns the traits of a kernel with these options. Decays per feature, short convolutions and
  /// SiLU of q and k break RoPE; a short convolution needs a query for each key.
  static KernelTraits traits(const Options& o) {
    return {.recurrent = true,
            .keeps_rotary_relative = o.decay != StateDecay::feature && o.decay != StateDecay::kda &&
                                     o.taps == 0 && !o.silu,
            .ordered = o.decay != StateDecay::none || o.delta || o.taps > 0,
            .value_heads = true,
            .memory = o.taps == 0};
  }
  Tensor operator()(const AttentionInputs& inputs) const override;
  /// Returns the factors of the values in y, before the norm.
  Tensor weights(const AttentionInputs& inputs) const override;
  std::string label() const override { return "GatedLinearKernel"; }

  const Options options;  ///< As passed to the constructor.
  const HeadShape shape;  ///< Sizes of the attention.
  /// log α [H] of retention and slopes, a buffer; else undefined.
  const Tensor log_decay;
  std::optional<Linear> decay;     ///< w of StateDecay::token, or W₁.
  std::optional<Linear> decay_up;  ///< W₂ of StateDecay::feature and kda, b of feature.
  const Tensor decay_rate;         ///< a [H] of StateDecay::token and kda.
  const Tensor decay_bias;         ///< b [H] of StateDecay::token, [H·D] of kda.
  std::optional<Linear> beta;      ///< w of the delta rule.
  std::optional<Linear> gate;      ///< W of the output gate, or W₁.
  std::optional<Linear> gate_up;   ///< W₂ of OutputGate::low_rank.
  std::optional<ShortConvolution> convolution;  ///< Convolution of q, k and v together.
  Norm norm;                                    ///< Norm of each head's output.

 private:
  struct Gated {
    Tensor q, k, v, log_decay, beta;
  };
  Gated gated(const AttentionInputs& inputs, LinearState* state) const;
  Tensor attended(const Gated& in, const AttentionInputs& inputs, LinearState* state) const;
  Tensor decays(const Tensor& x) const;
  void mix(Gated& in, const AttentionMask& mask, LinearState* state) const;
  Tensor finished(const Tensor& y, const Tensor& x) const;
};

/// Initializes a and b of log α_t = −e^a softplus(x_t·w + b) as Mamba-2 does: e^a is uniform in
/// [1, 16), softplus(b) is log-uniform in [0.001, 0.1).
void reset_token_decays(const Tensor& a, const Tensor& b);

/// Returns a factory of GatedLinearKernel.
MakeKernel gated_linear_kernel(GatedLinearKernelOptions options = {});

/// Multi-scale retention (RetNet): fixed decays, norm per head, swish gate. The positional
/// encoding of RetNet is RoPE. The paper normalizes by NormKind::layer, flash-linear-attention by
/// NormKind::rms.
MakeKernel retention_kernel(NormKind norm = NormKind::layer);
/// Lightning Attention: SiLU of q, k and v, fixed decays, sigmoid gate. The decays are those of the
/// authors' code, alibi_slopes(); transformers has 2^(−8 (h + 1) / H), which is equal if H is a
/// power of two.
MakeKernel lightning_kernel(double rate = 1);
/// GLA: a decay per token and feature, swish gate.
MakeKernel gla_kernel();
/// DeltaNet: the delta rule without decay, short convolutions.
MakeKernel delta_kernel();
/// Gated DeltaNet: the delta rule with a decay per token, short convolutions, swish gate.
MakeKernel gated_delta_kernel();
/// Kimi Delta Attention: the delta rule with a decay per token and feature, short convolutions, and a
/// sigmoid gate. Both gates are of rank Dv. As in the published weights, the output gate has no bias.
MakeKernel kda_kernel();

}  // namespace stretto::nn
