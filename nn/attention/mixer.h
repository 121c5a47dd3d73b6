// Mixer: what mixes the positions of a sequence in a layer. MultiHeadAttention and Mamba2 are
// mixers; LayerOptions::mixer puts another one, or your own, in the place of attention. A model
// whose layers have different mixers (a hybrid) sets them in LanguageModelOptions::vary_layer.
//
//     struct Sum : nn::Mixer {  // of all positions up to its own
//       Sum(nn::Module& parent, int64_t d_model) : Mixer(parent), out(*this, "out", {d_model, d_model}) {}
//       Tensor mix(const Tensor& x, const AttentionMask&, nn::KeyValueCache*,
//                  const nn::ForwardContext&) const override { return out(cumsum(x, 1)); }
//       nn::Linear out;
//     };
//     options.layer.mixer = nn::mixer<Sum>();
//
// A mixer with a cache is in examples/own_layer.cpp.
//
// Reference: none (an interface)
#pragma once

#include "../../core/formulas/attention_mask.h"
#include "../forward_context.h"
#include "../module.h"
#include "key_value_cache.h"

namespace stretto::nn {

/// What a mixer supports besides a causal mask. Calls that need more throw.
struct MixerTraits {
  /// The output depends on the order of the positions: a model needs no other position.
  bool ordered = true;
  bool bidirectional = false;  ///< Works without a causal mask.
  bool cache = false;          ///< mix() continues from a cache.
  /// AttentionMask::key_padding: other positions do not depend on the padding. Left padding
  /// (ForwardContext::left_padding) is then passed as key_padding.
  bool key_padding = false;
  /// With a cache, mix() receives the key_padding of the cached positions, too.
  bool cached_padding = false;
  /// AttentionMask::segments: positions depend only on those of their own segment. Segments of the
  /// ForwardContext are then passed in the mask.
  bool segments = false;
};

/// Base class of mixers.
class Mixer : public Module {
 public:
  /// Constructs a root module.
  Mixer() = default;
  /// Registers the mixer in `parent`.
  explicit Mixer(Module& parent, std::string name = "mixer") : Module(parent, std::move(name)) {}

  /// Returns what the mixer supports.
  virtual MixerTraits traits() const { return {}; }
  /// x [B, M, d_model] → [B, M, d_model]. With a cache, x continues the positions in it; a call that
  /// throws leaves the cache unchanged. Calls mix() after a check of what traits() allow; a mixer
  /// that checks its arguments itself overrides it, and then keeps state.length.
  virtual Tensor operator()(const Tensor& x, const AttentionMask& mask = {},
                            KeyValueCache* cache = nullptr,
                            const ForwardContext& forward = {}) const;
  /// Returns an empty cache for this mixer. Throws for limits (MultiHeadAttention::make_cache),
  /// unless overridden.
  virtual KeyValueCache make_cache(int64_t limit = 0, int64_t kept = 0) const;

 protected:
  /// The output for x. `mask` has only `causal` and what traits() allow, with columns for the
  /// positions of x (MixerTraits::cached_padding). The cache, if any, holds what earlier calls have stored in cache->state:
  /// tensors whose first dimension is the batch. state.length is the number of earlier positions;
  /// operator() increases it after the call.
  virtual Tensor mix(const Tensor& x, const AttentionMask& mask, KeyValueCache* cache,
                     const ForwardContext& forward) const;
};

/// Splits the last dimension into heads: x [B, N, H·D] → [B, H, N, D].
Tensor split_heads(const Tensor& x, int64_t n_heads);
/// The reverse: x [B, H, N, D] → [B, N, H·D].
Tensor join_heads(const Tensor& x);

/// A factory of mixers, as LayerOptions::mixer accepts it.
using MakeMixer = std::function<std::unique_ptr<Mixer>(Module& parent, int64_t d_model)>;

/// Returns a factory that constructs M(parent, d_model, arguments…), for your own mixer.
template <class M, class... Arguments>
MakeMixer mixer(Arguments... arguments) {
  return [=](Module& parent, int64_t d_model) {
    return std::make_unique<M>(parent, d_model, arguments...);
  };
}

}  // namespace stretto::nn
