// Which keys a query of attention sees.
//
// Reference: tests/reference/attention.cpp, attention_weights()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// The mask of one attention call. Query i of M stands at key position i + N − M.
struct AttentionMask {
  bool causal = false;      // no key after the query
  int64_t window = 0;       // > 0: no key that lies `window` or more positions before the query
  int64_t block = 0;        // > 0: causal, own block and the one before (Music Transformer)
  Tensor key_padding = {};  // [B, N] bool or u8, true = ignore that key

  bool is_causal() const { return causal || block > 0; }
};

/// Which keys each query may see under causal, window and block: bool [M, N], true = masked out.
/// Undefined when none is set.
Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionMask& mask,
                      Device device = default_device());

/// Keys begin … end − 1.
struct KeyRange {
  int64_t begin, end;
};

/// The keys that a query at key position `position` sees under causal, window and block.
KeyRange visible_keys(int64_t position, int64_t n_keys, const AttentionMask& mask);

/// Relative positions (key − query) from −past to future.
struct RelativeRange {
  int64_t past = 0;    ///< Largest distance of a key before its query.
  int64_t future = 0;  ///< Largest distance of a key after its query.
  int64_t first() const { return -past; }
  int64_t count() const { return past + 1 + future; }
};

/// Returns the relative positions at which some of M queries may see some of N keys under causal,
/// window and block; 0 among them even if there are none.
RelativeRange visible_range(int64_t n_queries, int64_t n_keys, const AttentionMask& mask);

}  // namespace stretto
