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

/// The largest distance into the past that any query sees.
int64_t furthest_past(int64_t n_keys, const AttentionMask& mask);

}  // namespace stretto
