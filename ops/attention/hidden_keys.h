// Keys that a mask hides from queries may hold anything, NaN and infinity too: they reach neither
// outputs nor gradients of queries that do not see them. Products over all keys would carry them
// there, as 0 · NaN is NaN. Internal to ops/.
//
// Reference: none (a guard; its tests compare with ordinary numbers in the place of junk)
#pragma once

#include "../../core/tensor.h"
#include "mask.h"

namespace stretto {

/// The rows of keys and values that must not enter products over all keys.
struct HiddenKeys {
  Tensor cleared;     // bool [B, G, N, 1]: rows to be replaced by zeros; undefined for none
  Tensor nan;         // bool [B, H, M, 1]: queries that see such a row; undefined for none
  bool huge = false;  // other hidden values are so large that products with gradients overflow

  bool defined() const { return cleared.defined(); }
  /// x [B, G, N, D] with zeros in the cleared rows, which get no gradient.
  Tensor clean(const Tensor& x) const;
  /// Attention to the clean keys [B, H, M, Dv], with NaN for queries that see a cleared row. Where
  /// the gradient of such an output is not 0, it becomes NaN too.
  Tensor mark(const Tensor& out) const;
};

/// Finds padded rows of k [B, G, N, D] and v [B, G, N, Dv] that are large, infinite or NaN, and
/// rows with an infinity or a NaN that some of `heads` × `n_queries` queries see and others do not.
/// On a GPU, where the host does not wait for what they hold: all padded rows, and no others.
HiddenKeys hidden_keys(int64_t heads, int64_t n_queries, const Tensor& k, const Tensor& v,
                       const AttentionMask& mask);

/// Whether all elements of x are finite; x on the CPU, [B, H, L, D].
bool all_finite(const Tensor& x);

}  // namespace stretto
