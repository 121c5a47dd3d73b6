// Positional encodings, which give attention information about the positions of its keys.
//
// A PositionalEncoding is a module that adds its terms to the inputs of attention: a
// table over relative positions, a bias, a rotation of q and k. It is chosen when the
// attention is constructed:
//
//     nn::MultiHeadAttention attention{*this, "attention",
//         {.d_model = 256, .n_heads = 8, .position = nn::music_relative({.max_length = 512})}};
//
// Your own encoding derives from PositionalEncoding and is passed as
// nn::positional_encoding<MyEncoding>(arguments…). Its PositionTraits are read from the factory, before
// the encoding exists.
//
// Reference: none (the interface of all encodings)
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "../../ops/attention/attention.h"
#include "../forward_context.h"
#include "../module.h"

namespace stretto {
struct LinearState;  // ops/attention/linear_attention.h
}

namespace stretto::nn {

/// Data that a PositionalEncoding stores in a KeyValueCache between calls. Immutable: a later call
/// replaces the object instead of changing it, so that copies of a cache stay independent.
struct EncodingState {
  virtual ~EncodingState() = default;
};

/// The inputs of one attention, in heads, with the options of ops/attention/attention.h. A
/// PositionalEncoding adds its terms to them.
struct AttentionInputs {
  Tensor q;                  ///< Queries [B, H, M, D].
  Tensor k;                  ///< Keys [B, G, N, D].
  Tensor v;                  ///< Values [B, G, N, Dv].
  AttentionOptions options;  ///< Mask, scale, dropout and the terms that encodings add.
  /// Context of the forward pass. Under sequence parallelism q, k and v are those of this process.
  ForwardContext forward = {};
  /// Summary of the positions before the keys, for kernels with a recurrent state
  /// (KernelTraits::recurrent); null without a cache.
  LinearState* state = nullptr;
  /// The encoding's entry in the cache that this call starts or continues; null without a cache.
  std::shared_ptr<const EncodingState>* encoding_state = nullptr;
  /// Position of the first key in the whole sequence: above 0 if a limited cache or a memory has
  /// dropped keys. The last key and the last query are at first_position + n_keys() − 1.
  int64_t first_position = 0;
  bool continued = false;  ///< True if the cache already holds positions of earlier calls.
  /// True if the cache began with a prefix (ForwardContext::prefix_lengths) in an earlier call.
  bool after_prefix = false;
  /// The layer's input [B, N, d_model], for gates and position queries, at the positions of the keys;
  /// with a KV cache only at the new ones [B, M, d_model]. The last M positions are those of the
  /// queries. Undefined in cross-attention.
  Tensor x = {};
  /// Returns M.
  int64_t n_queries() const { return q.size(2); }
  /// Returns N.
  int64_t n_keys() const { return k.size(2); }
  /// Returns the number of keys of all processes together, the sequence length under sequence
  /// parallelism. Distances of up to n_keys_of_all() − 1 occur.
  int64_t n_keys_of_all() const;
};

/// Adds `bias` to the dense bias of the inputs. Throws unless it broadcasts to [B, H, M, N].
void add_bias(AttentionInputs& inputs, const Tensor& bias);

/// Returns the relative positions that can occur, for the keys of all processes and without regard
/// to window and blocks: past = n_keys_of_all() − 1; future = M − 1, or 0 if the mask is causal. A
/// table with one row for each of these relative positions has `zero_row` = past.
RelativeRange relative_range(const AttentionInputs& inputs);

/// Returns −past, …, 0, …, future of relative_range(inputs) as [past + 1 + future] on the device of
/// q, in f64 if q is f64, else in f32, because bf16 cannot count beyond 256. Convert a table
/// computed from it to the dtype of q as the last step.
Tensor relative_positions(const AttentionInputs& inputs);

/// The sizes of an attention layer, from which encodings and kernels create their parameters.
struct HeadShape {
  int64_t n_heads = 0;        ///< H, the number of query heads.
  int64_t d_key = 0;          ///< D, the dimension of queries and keys per head.
  int64_t d_value = 0;        ///< Dv, the dimension of values per head.
  int64_t d_model = 0;        ///< Dimension of the layer's input and output.
  int64_t n_kv_heads = 0;     ///< G, the number of key heads.
  int64_t n_value_heads = 0;  ///< The number of value heads; 0: G.
  /// Returns the number of heads of the output.
  int64_t n_output_heads() const { return std::max(n_heads, n_value_heads); }
  bool operator==(const HeadShape&) const = default;
};

/// What a positional encoding needs and supports. The defaults are those of an encoding of which
/// nothing is known: attention rejects nothing because of them.
struct PositionTraits {
  bool causal = true;         ///< Works with a causal mask, and then with a KeyValueCache.
  bool bidirectional = true;  ///< Works without a causal mask.
  /// Works with every memory (LanguageModel::make_memory): the result does not depend on where
  /// segments begin.
  bool memory = true;
  /// Acts on the scores, which a recurrent kernel does not have (KernelTraits::recurrent).
  bool scores = false;
  bool plane = false;                 ///< Every call has all tokens of a plane, and no others.
  int64_t multiple = 1;               ///< The head dimension D is a multiple of this number.
  int64_t max_positions = INT64_MAX;  ///< Largest number of positions.
  /// The scores depend only on the positions of keys relative to their queries, so that they stay
  /// the same if AttentionInputs::first_position changes. Sequences with different left padding
  /// (ForwardContext::left_padding) are then encoded together, otherwise one by one.
  bool relative = false;
  /// The terms depend on the keys or have one column per key (a dense bias). Under sequence
  /// parallelism the keys of earlier processes are then gathered before apply() and sequence_group
  /// is null.
  bool dense = false;
  /// The encoding of a key depends only on the key and its position (first_position + row). A cache
  /// then stores encoded keys, and later calls pass only the new keys to apply(), with
  /// AttentionInputs::continued set.
  bool caches_encoded_keys = false;
};

/// A factory of T, a part of an attention, with the traits of the parts that it constructs. A
/// function (Module& parent, HeadShape shape) → std::unique_ptr<T> converts to it.
template <class T, class Traits>
struct AttentionPart : std::function<std::unique_ptr<T>(Module& parent, HeadShape shape)> {
  using std::function<std::unique_ptr<T>(Module& parent, HeadShape shape)>::function;
  Traits traits = {};  ///< What the constructed parts need and support.
};

/// Returns a factory that constructs P(parent, shape, arguments…), with P::traits(arguments…).
template <class P, class Factory, class... Arguments>
Factory attention_part(Arguments... arguments) {
  Factory factory = [=](Module& parent, HeadShape shape) {
    return std::make_unique<P>(parent, shape, arguments...);
  };
  factory.traits = P::traits(arguments...);
  return factory;
}

/// Base class of positional encodings.
class PositionalEncoding : public Module {
 public:
  /// Returns the traits of an encoding that is constructed with these arguments. An encoding
  /// with other traits declares its own `static PositionTraits traits(const Options&)`, which is then
  /// used.
  template <class... Arguments>
  static PositionTraits traits(const Arguments&...) {
    return {};
  }
  /// Registers the encoding in `parent`, an attention, under the name "position".
  explicit PositionalEncoding(Module& parent) : Module(parent, "position") {}
  /// Adds the encoding's terms to `inputs`, or replaces q and k by encoded ones.
  virtual void apply(AttentionInputs& inputs) const = 0;
  /// Returns the dimension of the queries and keys that apply() produces; by default d_key.
  virtual int64_t encoded_dim(HeadShape shape) const { return shape.d_key; }
};

/// A factory of positional encodings, as MultiHeadAttentionOptions::position accepts it.
using MakePositionalEncoding = AttentionPart<PositionalEncoding, PositionTraits>;

/// Returns a factory that constructs P(parent, shape, arguments…), with P::traits(arguments…).
template <class P, class... Arguments>
MakePositionalEncoding positional_encoding(Arguments... arguments) {
  return attention_part<P, MakePositionalEncoding>(std::move(arguments)...);
}

/// The encoding that adds nothing: attention does not depend on positions.
class NoPosition : public PositionalEncoding {
 public:
  /// Registers the encoding in `parent`.
  NoPosition(Module& parent, HeadShape) : PositionalEncoding(parent) {}
  /// Returns the traits of an encoding that adds nothing.
  static PositionTraits traits() { return {.relative = true}; }
  void apply(AttentionInputs&) const override {}
  std::string label() const override { return "NoPosition"; }
};

/// Returns a factory of NoPosition, to switch off the default encoding of a model that has one.
inline MakePositionalEncoding no_position() { return positional_encoding<NoPosition>(); }

/// Returns a factory whose encodings share one set of parameters in all layers of a stack: the first
/// attention that uses it owns the encoding, the others refer to it. A stack is the innermost List
/// that contains the attention, or the whole model outside of lists. An encoder and a decoder, two
/// models, and a model and its clone share nothing.
MakePositionalEncoding shared_by_layers(const MakePositionalEncoding& make);

/// One T per model, created on first use. Modules belong to one model if they have the same root.
template <class T>
class PerModel {
 public:
  /// Returns the T of the model that contains `part`.
  T& operator()(const Module& part) { return all_[part.root().serial()]; }

 private:
  std::map<uint64_t, T> all_;
};

}  // namespace stretto::nn
