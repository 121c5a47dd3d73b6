// Which keys a query of attention sees.
#pragma once

#include "core/tensor.h"

namespace stretto {

/// The mask of one attention call. Query i of M stands at key position i + N − M.
struct AttentionMask {
  bool causal = false;      // no key after the query
  int64_t window = 0;       // > 0: no key that lies `window` or more positions before the query
  int64_t block = 0;        // > 0: causal, own block and the one before (Music Transformer)
  Tensor key_padding = {};  // [B, N] bool or u8, true = ignore that key
};

}  // namespace stretto
