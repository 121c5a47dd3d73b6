// The masks of attention: which keys a query sees.
//
// Reference: tests/reference/attention.cpp, attention_weights()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// The mask of one attention op. Query i of M has key position i + N − M, where N is the number of
/// keys. The default hides nothing.
struct AttentionMask {
  bool causal = false;  ///< Hides keys after the query.
  int64_t window = 0;   ///< > 0: hides keys `window` or more positions before the query.
  /// > 0: causal attention in blocks of this size (Music Transformer). A query sees the keys of its
  /// own block up to its own position, and the whole block before.
  int64_t block = 0;
  Tensor key_padding = {};  ///< [B, N] bool or u8; true hides the key from all queries.

  /// True if no query sees a key after its own position: causal or block.
  bool is_causal() const { return causal || block > 0; }
};

/// Returns the keys hidden from each query by causal, window and block: bool [M, N], true = hidden.
/// Undefined if none of them is set.
Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionMask& mask,
                      Device device = default_device());

/// A range of keys, begin … end − 1.
struct KeyRange {
  int64_t begin;  ///< First key.
  int64_t end;    ///< One past the last key.
};

/// Returns the keys that a query at key position `position` sees under causal, window and block.
KeyRange visible_keys(int64_t position, int64_t n_keys, const AttentionMask& mask);

/// Relative positions (key − query) from −past to future.
struct RelativeRange {
  int64_t past = 0;    ///< Largest distance of a key before its query.
  int64_t future = 0;  ///< Largest distance of a key after its query.
  /// Returns the smallest relative position, −past.
  int64_t first() const { return -past; }
  /// Returns the number of relative positions.
  int64_t count() const { return past + 1 + future; }
};

/// Returns the relative positions at which any of M queries may see any of N keys under causal,
/// window and block. The range always includes 0, even if there are no queries or keys.
RelativeRange visible_range(int64_t n_queries, int64_t n_keys, const AttentionMask& mask);

}  // namespace stretto
