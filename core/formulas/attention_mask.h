// The masks of attention: settings, and the keys that a query sees by its position.
//
// Reference: tests/reference/attention.cpp, attention_weights()
#pragma once

#include <initializer_list>
#include <string_view>

#include "../tensor.h"

namespace stretto {

/// The mask of one attention op. Query i of M has key position i + N − M, where N is the number of
/// keys. The default hides nothing. A key is visible if no setting hides it. With the defaults of
/// the other settings, memory and time do not depend on M × N beyond the visible keys; only
/// `hidden` has M × N elements.
struct AttentionMask {
  /// Hides keys after the query. With M ≠ N the last query sees the last key, whereas PyTorch's
  /// is_causal aligns the first query with the first key.
  bool causal = false;
  int64_t window = 0;  ///< > 0: hides keys `window` or more positions before the query.
  /// > 0: causal attention in blocks of this size (Music Transformer). A query sees the keys of its
  /// own block up to its own position, and the whole block before. Throws together with windows,
  /// prefix_lengths and global_tokens.
  int64_t block = 0;
  Tensor key_padding = {};  ///< [B, N] bool or u8; true hides the key from all queries.
  /// > 0: hides keys `window_after` or more positions after the query. A bidirectional window sets
  /// both.
  int64_t window_after = 0;
  /// [B, N] i64 or i32: the segment of each key, for several documents packed into one sequence.
  /// Hides keys of other segments than the query's own. Requires M ≤ N.
  Tensor segments = {};
  /// [B] i64 or i32: prefix-LM. `causal`, which is required, does not hide the first
  /// prefix_lengths[b] keys.
  Tensor prefix_lengths = {};
  /// [B, N] bool or u8: global attention (Longformer, 2020). The windows hide no key that is
  /// global or from a query that is. With causal and window, global first tokens are the attention
  /// sinks of StreamingLLM (2023). Requires a window, and M ≤ N.
  Tensor global_tokens = {};
  /// bool or u8, broadcasts to [B, H, M, N]: true hides the key from the query.
  Tensor hidden = {};

  /// True if no query sees a key after its own position.
  bool is_causal() const { return (causal && !prefix_lengths.defined()) || block > 0; }
};

/// Returns the name of a setting that is set and not one of the names in `accepted`; null if there
/// is none.
const char* setting_besides(const AttentionMask& mask,
                            std::initializer_list<std::string_view> accepted);

/// A range of keys, begin … end − 1.
struct KeyRange {
  int64_t begin;  ///< First key.
  int64_t end;    ///< One past the last key.
};

/// Returns the smallest range that contains all keys that a query at key position `position` can
/// see under the settings that are not tensors. If prefix_lengths or global_tokens make more keys
/// visible, `causal` or the windows do not limit the range.
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

/// Returns the relative positions at which any of M queries may see any of N keys under the
/// settings that are not tensors. The range always includes 0, even if there are no queries or
/// keys.
RelativeRange visible_range(int64_t n_queries, int64_t n_keys, const AttentionMask& mask);

}  // namespace stretto
