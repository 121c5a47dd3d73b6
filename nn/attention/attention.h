// Multi-head attention. Its position and its kernel are chosen independently.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "../../ops/attention/mask.h"
#include "../linear.h"
#include "../module.h"
#include "../norm.h"
#include "../positions/positional_encoding.h"
#include "key_value_cache.h"

namespace stretto::nn {

/// Computes the output of one call, [B, H, M, Dv].
class AttentionKernel : public Module {
 public:
  explicit AttentionKernel(Module& parent) : Module(parent, "kernel") {}
  virtual Tensor operator()(const AttentionInputs& inputs) const = 0;
  /// The weights of the call's values, [B, H, M, N]: the softmax weights, unless a kernel overrides
  /// this. A kernel with a state has no softmax: it is an error unless it does.
  virtual Tensor weights(const AttentionInputs& inputs) const;
  /// Whether a call of this process's piece of a sequence (ForwardContext) can be answered.
  virtual bool supports_sequence_parallel() const { return false; }
  /// Whether the past can be a state of fixed size in the place of keys and values. Calls with a
  /// cache then bring the new positions alone, and AttentionInputs::state.
  virtual bool has_recurrent_state() const { return false; }
};

using MakeKernel = std::function<std::unique_ptr<AttentionKernel>(Module& parent, HeadShape shape)>;

/// Makes a K(parent, head shape, arguments…), for a kernel of your own: `.kernel =
/// nn::kernel<MyKernel>(arguments…)`. The shape's d_key is the one after the position.
template <class K, class... Arguments>
MakeKernel kernel(Arguments... arguments) {
  return [=](Module& parent, HeadShape shape) {
    return std::make_unique<K>(parent, shape, arguments...);
  };
}

/// softmax(scores) v: ops/attention/attention.h.
class SoftmaxKernel : public AttentionKernel {
 public:
  SoftmaxKernel(Module& parent, HeadShape, Implementation form_)
      : AttentionKernel(parent), implementation(form_) {}
  Tensor operator()(const AttentionInputs& inputs) const override;
  bool supports_sequence_parallel() const override { return true; }
  std::string label() const override { return "SoftmaxKernel"; }

  const Implementation implementation;
};

MakeKernel softmax_kernel(Implementation implementation = Implementation::automatic);

struct MultiHeadAttentionOptions {
  int64_t d_model = 0;
  int64_t n_heads = 1;
  int64_t n_kv_heads = 0;  // fewer key heads, shared by groups of query heads; 0: n_heads
  int64_t d_key = 0;       // size of one head; 0: d_model / n_heads
  int64_t d_value = 0;     // 0: d_model / n_heads
  bool bias = true;        // of q, k, v and out, unless one says otherwise
  std::optional<bool> q_bias = {}, k_bias = {}, v_bias = {}, out_bias = {};
  /// A norm of each head's queries, and one of its keys, before the position (Qwen3); its dim is
  /// d_key.
  std::optional<Norm::Options> qk_norm = {};
  /// > 0: every call must be causal, and no query sees a key `window` or more positions before it
  /// (Mistral). A mask's own window counts where it is smaller.
  int64_t window = 0;
  double dropout = 0;                    // of the attention weights, in training
  std::optional<double> scale = {};      // of the scores; 1/√d_key when not given (T5: 1)
  MakePositionalEncoding position = {};  // none by default
  MakeKernel kernel = {};                // softmax_kernel() by default
};

/// Projections q, k, v [.., d_model] → heads, attention, projection of the joined heads back
/// (Vaswani et al. 2017, §3.2.2).
class MultiHeadAttention : public Module {
 public:
  using Options = MultiHeadAttentionOptions;
  explicit MultiHeadAttention(Options options);
  MultiHeadAttention(Module& parent, std::string name, Options options);

  /// Self-attention: x [B, M, d_model] → the same. With a cache x continues the positions in it. A
  /// cache that a layer of other sizes, or a kernel of the other kind, has filled is an error.
  Tensor operator()(const Tensor& x, const AttentionMask& mask = {}, KeyValueCache* cache = nullptr,
                    const ForwardContext& forward = {}) const;
  /// Attention from x [B, M, d_model] to context [B, N, d_model]. For masks and positions the
  /// queries are the last M of the N positions. With a cache the first call puts the keys and
  /// values of the context there, and later ones do not look at `context`.
  Tensor operator()(const Tensor& x, const Tensor& context, const AttentionMask& mask,
                    KeyValueCache* cache = nullptr, const ForwardContext& forward = {}) const;
  /// A cache for this layer that keeps the last `limit` positions, or with 0 all.
  KeyValueCache make_cache(int64_t limit = 0) const;
  /// Self-attention or attention to a context in two halves, for models that complete the call in
  /// between: the projections of x [B, M, d_model] and of its context [B, N, d_model] as heads, and
  /// what comes after them. The first key is at the context's first_position, unless
  /// AttentionInputs::first_position is set in between.
  AttentionInputs project(const Tensor& x, const Tensor& context, const AttentionMask& mask,
                          const ForwardContext& forward = {}) const;
  Tensor attend(AttentionInputs inputs) const;
  /// The weights of self-attention [B, H, M, M], for pictures.
  Tensor weights(const Tensor& x, const AttentionMask& mask = {}) const;
  /// The scores that the softmax kernel weights keys by, [B, H, M, M], and −∞ for keys that are not
  /// seen (ops/attention/attention.h). Kernels that approximate softmax, as Performers do,
  /// approximate these.
  Tensor scores(const Tensor& x, const AttentionMask& mask = {}) const;
  std::string label() const override;

  const Options options;
  Linear q{*this, "q", projection(options.n_heads* options.d_key, options.q_bias)};
  Linear k{*this, "k", projection(options.n_kv_heads* options.d_key, options.k_bias)};
  Linear v{*this, "v", projection(options.n_kv_heads* options.d_value, options.v_bias)};
  Linear out{*this,
             "out",
             {options.n_heads * options.d_value, options.d_model,
              options.out_bias.value_or(options.bias)}};
  std::optional<Norm> q_norm, k_norm;  // with qk_norm

 private:
  static Options completed(Options options);
  Linear::Options projection(int64_t width, std::optional<bool> bias) const {
    return {options.d_model, width, bias.value_or(options.bias)};
  }
  void make();
  AttentionMask seen(AttentionMask mask) const;
  HeadShape shape() const {
    return {options.n_heads, options.d_key, options.d_value, options.d_model};
  }
  void check_limit(const KeyValueCache& cache) const;
  void check_sizes(const KeyValueCache& cache) const;
  void continue_from(AttentionInputs& inputs, KeyValueCache& cache, bool new_keys_alone) const;
  void apply_position(AttentionInputs& inputs) const;
  void append_to_cache(AttentionInputs& inputs, KeyValueCache& cache) const;

  std::unique_ptr<PositionalEncoding> position_;
  std::unique_ptr<AttentionKernel> kernel_;
};

}  // namespace stretto::nn
