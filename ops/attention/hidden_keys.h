// Keys that a mask hides from queries may contain any values, including NaN and infinity. These
// values must not reach outputs or gradients of queries that do not see the keys. Matrix products
// over all keys would propagate the values, because 0 · NaN is NaN. Internal to ops/.
//
// Reference: none (a guard; its tests replace such values by ordinary ones and compare)
#pragma once

#include "../../core/tensor.h"
#include "mask.h"

namespace stretto {

/// The rows of keys and values that must not enter matrix products over all keys.
struct HiddenKeys {
  Tensor cleared;     ///< bool [B, G, N, 1]: rows to replace by zeros; undefined if none.
  Tensor nan;         ///< bool [B, H, M, 1]: queries that see such a row; undefined if none.
  bool huge = false;  ///< Other hidden values are so large that products with gradients overflow.

  bool defined() const { return cleared.defined(); }
  /// Returns x [B, G, N, D] with zeros in the cleared rows, which get no gradient.
  Tensor clean(const Tensor& x) const;
  /// Returns `out`, the attention to the clean keys [B, H, M, Dv], with NaN for queries that see a
  /// cleared row. Nonzero gradients of these outputs become NaN too.
  Tensor mark(const Tensor& out) const;
};

/// Finds padded rows of k [B, G, N, D] and v [B, G, N, Dv] that are large, infinite or NaN, and
/// rows with an infinity or a NaN that some of `heads` × `n_queries` queries see and others do not.
/// On a GPU, where reading the values would synchronize, returns all padded rows and no others.
HiddenKeys hidden_keys(int64_t heads, int64_t n_queries, const Tensor& k, const Tensor& v,
                       const AttentionMask& mask);

/// True if all elements of x [B, H, L, D], on the CPU, are finite.
bool all_finite(const Tensor& x);

}  // namespace stretto
