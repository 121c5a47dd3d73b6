// Positions: how attention knows where its keys are.
//
// A Position is a module that looks at one attention call and adds its terms to it: a table over
// relative positions, a bias, a rotation of q and k. It is chosen when the attention is made:
//
//     nn::MultiHeadAttention attention{*this, "attention",
//         {.d_model = 256, .n_heads = 8, .position = nn::music_relative({.max_length = 512})}};
//
// A scheme of your own derives from Position and is passed as
// nn::positional_encoding<MyScheme>(arguments…).
//
// Reference: none (what all positions have in common)
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "../../ops/attention/attention.h"
#include "../forward_context.h"
#include "../module.h"

namespace stretto {
struct LinearState;  // ops/attention/linear_attention.h
}

namespace stretto::nn {

/// What a Position remembers of one cache or state, from call to inputs. Never changed: a call puts
/// another in its place.
struct EncodingState {
  virtual ~EncodingState() = default;
};

/// One call of attention: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] and the settings of
/// ops/attention/attention.h, which a Position completes.
struct AttentionInputs {
  Tensor q, k, v;
  AttentionOptions options;
  /// Of the pass that the call is part of; queries and keys are this process's, if processes share
  /// the sequence.
  ForwardContext forward = {};
  /// Of a kernel that keeps one (nn/attention/attention.h): the positions before the keys.
  LinearState* state = nullptr;
  /// Of the cache that the call begins or continues; null without one.
  std::shared_ptr<const EncodingState>* encoding_state = nullptr;
  /// Position of the first key in the whole sequence: more than 0 where a limited cache or a memory
  /// has dropped keys. The last key's is first + n_keys() − 1, and so is the last query's.
  int64_t first_position = 0;
  bool continued = false;  // goes on where an earlier call left a cache
  int64_t n_queries() const { return q.size(2); }
  int64_t n_keys() const { return k.size(2); }
  /// Keys of all processes: lags to n_keys_of_all() − 1 occur.
  int64_t n_keys_of_all() const;
};

/// Adds what broadcasts to [B, H, M, N] to the call's dense bias, whether there is one or not.
void add_bias(AttentionInputs& inputs, const Tensor& bias);

/// Returns the relative positions that can occur in a call whatever its window or blocks, the keys
/// of all processes included (ForwardContext::sequence_group): past N − 1, future M − 1, or 0 in a
/// causal inputs. A table with a row for each has `zero_row` = past.
RelativeRange relative_range(const AttentionInputs& inputs);

/// Returns −past, …, 0, …, future of relative_range(call), [past + 1 + future], on the device of q:
/// f64 if q is f64, else f32, because bf16 cannot count beyond 256. A table computed from it is
/// converted to the dtype of q last.
Tensor relative_positions(const AttentionInputs& inputs);

/// What a Position may need to know to make its parameters.
struct HeadShape {
  int64_t n_heads = 0;
  int64_t d_key = 0;    // D of one head
  int64_t d_value = 0;  // Dv of one head
  int64_t d_model = 0;
  bool operator==(const HeadShape&) const = default;
};

class PositionalEncoding : public Module {
 public:
  /// Every scheme registers under the name "position" in its attention.
  explicit PositionalEncoding(Module& parent) : Module(parent, "position") {}
  virtual void apply(AttentionInputs& inputs) const = 0;
  /// D of the queries and keys that apply() leaves, where it is not shape.d_key.
  virtual int64_t encoded_dim(HeadShape shape) const { return shape.d_key; }
  /// Whether what apply() makes of a key depends on nothing but the key and its position,
  /// inputs.first_position + its row. A cache then keeps what it was made into, and later calls
  /// bring the new keys alone, with `continued`.
  virtual bool caches_encoded_keys() const { return false; }
  /// Whether what apply() adds is made of the keys, or has a column for each of them. Of a sequence
  /// that processes share the call then brings all keys before its own, and has no group.
  virtual bool is_dense() const { return false; }
};

using MakePositionalEncoding =
    std::function<std::unique_ptr<PositionalEncoding>(Module& parent, HeadShape shape)>;

/// Makes a P(parent, head shape, arguments…).
template <class P, class... Arguments>
MakePositionalEncoding positional_encoding(Arguments... arguments) {
  return [=](Module& parent, HeadShape shape) {
    return std::make_unique<P>(parent, shape, arguments...);
  };
}

/// Attention that does not know where its keys are.
class NoPosition : public PositionalEncoding {
 public:
  NoPosition(Module& parent, HeadShape) : PositionalEncoding(parent) {}
  void apply(AttentionInputs&) const override {}
  std::string label() const override { return "NoPosition"; }
};

/// For models that have a position of their own where none is given.
inline MakePositionalEncoding no_position() { return positional_encoding<NoPosition>(); }

/// One position for all layers of a model (T5): the first attention made with the result owns it,
/// the others use it. A model is what has no parent; each, a clone too, has a position of its own.
MakePositionalEncoding shared_by_layers(MakePositionalEncoding make);

/// A T for each model (as above) that the attentions of a MakePositionalEncoding are in.
template <class T>
class PerModel {
 public:
  T& operator()(const Module& part) { return all_[part.root().serial()]; }

 private:
  std::map<uint64_t, T> all_;
};

}  // namespace stretto::nn
