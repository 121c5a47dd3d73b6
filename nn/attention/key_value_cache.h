// The cache of an attention layer for generation: keys and values, or a recurrent state.
//
// Reference: none (a state; its tests compare with one call for the whole sequence)
#pragma once

#include <memory>
#include <vector>

#include "../../ops/attention/linear_attention.h"
#include "../positions/positional_encoding.h"

namespace stretto::nn {

struct KeyValueRoom;  // nn/attention/key_value_cache.cpp

/// The last inputs of a layer's short convolutions, [B, T − 1, C] each; undefined before the first
/// call and without the convolution.
struct ConvolutionHistories {
  Tensor k;        ///< MultiHeadAttention::k_convolution.
  Tensor v;        ///< MultiHeadAttention::v_convolution.
  Tensor mixer;    ///< TransformerLayer::mixer_convolution.
  Tensor network;  ///< TransformerLayer::network_convolution.
};

/// The KV cache of one attention layer. Starts empty and grows with every successful call; a call
/// that throws leaves it unchanged. For self-attention with a kernel that has a recurrent state,
/// the cache holds only that state, of constant size. Copies are independent; they share memory
/// until a second copy is extended.
///
/// Models that call several layers, each with its own cache, use all_or_nothing
/// (core/all_or_nothing.h): after an error no cache has changed.
struct KeyValueCache {
  Tensor k;  ///< Cached keys [B, G, N, D]; encoded if PositionTraits::caches_encoded_keys.
  Tensor v;  ///< Cached values [B, G, N, Dv].
  /// > 0: after each call only the last `limit` positions remain. The tokens of the next call see
  /// these and, under the mask, each other: one token at a time is like a window of limit + 1.
  /// Relative positions stay correct.
  int64_t limit = 0;
  /// The first `kept` positions, less than the limit, are never dropped: the attention sinks of
  /// StreamingLLM (Xiao et al. 2024, §3.2). As there, positions count within the cache, so that the
  /// kept positions are next to the oldest of the others. Requires a positional encoding with
  /// PositionTraits::relative, or none. Keys are cached before they are encoded.
  int64_t kept = 0;
  LinearState state = {};                              ///< State of a recurrent kernel.
  ConvolutionHistories histories = {};                 ///< Of the layer's short convolutions.
  std::shared_ptr<const EncodingState> position = {};  ///< Data of the positional encoding.
  int64_t dropped = 0;         ///< Number of positions that the limit has removed.
  Tensor prefix_lengths = {};  ///< ForwardContext::prefix_lengths of the first call, if any.
  /// Module::serial() of the attention that has filled the cache; 0: none. Other attentions,
  /// those of a clone too, reject it.
  uint64_t layer = 0;
  /// Buffer that k and v are views of, with a quarter of spare capacity. If it is null, as when the
  /// tape records, every call copies k and v.
  std::shared_ptr<KeyValueRoom> room = {};

  /// Returns the number of positions in the cache, without the dropped ones.
  int64_t length() const { return k.defined() ? k.size(2) : state.length; }
  /// Returns the position of the next token, padding and dropped positions included.
  int64_t end() const { return dropped + length(); }
  /// Appends the keys [B, G, n, D] and values [B, G, n, Dv] of the next n positions.
  void append(const Tensor& keys, const Tensor& values);
  /// Drops the oldest positions beyond the limit.
  void trim();
  /// Drops the positions before `first`, if they are still in the cache. Does not change a
  /// recurrent state.
  void drop_before(int64_t first);
  /// Replaces the batch: row i becomes the former row rows[i]. rows [n] (i64) may
  /// omit and repeat rows.
  void reorder(const Tensor& rows);
};

/// Marks the cache as filled by this layer. Throws an Error of `op` if another layer has filled it.
void claim(const char* op, KeyValueCache& cache, const Module& layer);

/// Resizes an empty list to one cache per layer of a model. Throws an error of `op` if the list has
/// another length, which means that another model has filled it.
template <class Cache>
void for_layers(const char* op, std::vector<Cache>& caches, int64_t n_layers) {
  check(caches.empty() || int64_t(caches.size()) == n_layers, op, "the cache has ",
        int64_t(caches.size()), " layers, the model ", n_layers,
        "; accepted: a cache that this model has filled, or an empty one");
  caches.resize(size_t(n_layers));
}

}  // namespace stretto::nn
