// What an attention layer keeps of the positions seen so far, for generation.
//
// Reference: none (a state; its tests compare with one pass over everything)
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "../../ops/attention/linear_attention.h"
#include "../positions/positional_encoding.h"

namespace stretto::nn {

struct KeyValueRoom;  // nn/attention/key_value_cache.cpp

/// Keys and values of the positions seen so far. One per attention layer; starts empty and grows
/// with every call that succeeds: one that throws leaves it as it was. For self-attention with a
/// kernel that keeps a state it has that alone, which does not grow. A copy is another cache, and
/// costs no memory until both have gone on.
///
/// Models that call several layers, with a cache each, change them together or not at all by
/// all_or_nothing (core/all_or_nothing.h).
struct KeyValueCache {
  Tensor k, v;  // [B, G, N, D], [B, G, N, Dv]; of positions that encode keys, the encoded ones
  /// > 0: only the last `limit` positions are kept. Relative positions stay right.
  int64_t limit = 0;
  LinearState state = {};
  std::shared_ptr<const EncodingState> position = {};
  int64_t dropped = 0;  // positions that the limit took away
  /// Sizes of the layer that has filled it: layers of other sizes refuse it.
  std::optional<HeadShape> layer = {};
  /// Memory that k and v are views of and grow in, a quarter more than they need; where there is
  /// none, as on the tape, every call copies them.
  std::shared_ptr<KeyValueRoom> room = {};

  int64_t length() const { return k.defined() ? k.size(2) : state.length; }
  /// Joins keys [B, G, n, D] and values [B, G, n, Dv] of the next n positions to k and v.
  void append(const Tensor& keys, const Tensor& values);
  /// Lets go of positions beyond the limit.
  void trim();
  /// Row i becomes what row rows[i] was: rows [n] (i64) may leave some out and repeat others.
  void reorder(const Tensor& rows);
};

/// Makes an empty list one cache for each of a model's layers. Throws Error of `op` for a list of
/// another length, which is of another model.
template <class Cache>
void for_layers(const char* op, std::vector<Cache>& caches, int64_t n_layers) {
  check(caches.empty() || int64_t(caches.size()) == n_layers, op, "a cache of ",
        int64_t(caches.size()), " layers for a model of ", n_layers,
        "; accepted: a cache that this model has filled, or an empty one");
  caches.resize(size_t(n_layers));
}

}  // namespace stretto::nn
