// Latent attention: the keys and values of all heads are projections of one small vector per
// position, which is all that a cache stores.
//
//     options.layer.mixer = nn::latent_attention({.n_heads = 16, .d_latent = 512});
//
// Reference: tests/reference/latent_attention.cpp, latent_attention()
#pragma once

#include <memory>
#include <optional>

#include "../linear.h"
#include "../norm.h"
#include "../positions/rotary.h"
#include "mixer.h"

namespace stretto::nn {

/// Options of LatentAttention. Names in transformers are in brackets.
struct LatentAttentionOptions {
  int64_t d_model = 0;     ///< Dimension of inputs and outputs; latent_attention() sets it.
  int64_t n_heads = 1;     ///< H, the number of heads.
  int64_t d_latent = 512;  ///< C, the dimension of the latent of keys and values (kv_lora_rank).
  /// > 0: queries are projections of a latent of this dimension (q_lora_rank).
  int64_t d_query_latent = 0;
  int64_t d_content = 128;  ///< Features of q and k without position, per head (qk_nope_head_dim).
  int64_t d_position = 64;  ///< P, features of q and k with position (qk_rope_head_dim).
  int64_t d_value = 128;    ///< Dv, the dimension of values per head (v_head_dim).
  bool bias = false;  ///< Biases of the projections to latents and of the output (attention_bias).
  double norm_eps = 1e-6;            ///< ε of the norms of latents.
  double dropout = 0;                ///< Dropout of the attention weights, in training.
  std::optional<double> scale = {};  ///< Scale of the scores; by default 1/√(d_content + P).
  /// Positional encoding of the features with position. It must be relative: RoPE, tables, whose
  /// product is then with these features of q, or biases of the scores.
  MakePositionalEncoding position = rotary({.pairing = RotaryPairing::interleaved});
};

/// Multi-head latent attention (MLA; DeepSeek-AI 2024, "DeepSeek-V2", §2.1). For position t:
///
///     c_t = norm(kv_down(x_t)[: C]),   r_t = encode(kv_down(x_t)[C :])     shared by all heads
///     k_t = [K_h c_t, r_t],   v_t = V_h c_t                                of head h
///
/// with K_h and V_h from the weight of kv_up. A cache stores c_t and r_t, C + P elements per position
/// instead of H (d_content + P + d_value). If few queries meet many keys, as in generation, keys and
/// values are not computed: q K_h is multiplied by the latents, and V_h by their weighted sum ("absorbed"
/// projections, the same function in another order).
class LatentAttention : public Mixer {
 public:
  using Options = LatentAttentionOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1 or the encoding is not relative.
  explicit LatentAttention(Options options);
  /// Constructs a child of `parent`. Throws likewise.
  LatentAttention(Module& parent, std::string name, Options options);

  MixerTraits traits() const override;
  std::string label() const override;

  const Options options;         ///< As passed to the constructor.
  std::optional<Linear> q_down;  ///< d_model → d_query_latent, with Options::d_query_latent.
  std::optional<Norm> q_norm;    ///< Norm of the latent of queries.
  /// d_model or d_query_latent → H (d_content + P).
  Linear q{*this,
           "q",
           {options.d_query_latent > 0 ? options.d_query_latent : options.d_model,
            options.n_heads*(options.d_content + options.d_position), false}};
  /// d_model → C + P.
  Linear kv_down{
      *this, "kv_down", {options.d_model, options.d_latent + options.d_position, options.bias}};
  /// Norm of the latent of keys and values.
  Norm kv_norm{
      *this,
      "kv_norm",
      {.dim = options.d_latent, .eps = options.norm_eps, .kind = NormKind::rms, .bias = false}};
  /// C → H (d_content + Dv): for each head the rows of K_h, then those of V_h.
  Linear kv_up{*this,
               "kv_up",
               {options.d_latent, options.n_heads*(options.d_content + options.d_value), false}};
  /// H·Dv → d_model.
  Linear out{*this, "out", {options.n_heads * options.d_value, options.d_model, options.bias}};

 protected:
  Tensor mix(const Tensor& x, const AttentionMask& mask, KeyValueCache* cache,
             const ForwardContext& forward) const override;

 private:
  static Options checked(Options options);
  void make();
  Tensor expanded(const Tensor& content, const Tensor& keys, const AttentionInputs& in) const;
  Tensor absorbed(const Tensor& content, const Tensor& keys, const AttentionInputs& in) const;
  bool absorbs(int64_t m, int64_t n, const AttentionOptions& options) const;

  std::unique_ptr<PositionalEncoding> position_;
};

/// Returns a factory of LatentAttention, for LayerOptions::mixer.
MakeMixer latent_attention(const LatentAttentionOptions& options = {});

}  // namespace stretto::nn
