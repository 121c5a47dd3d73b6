// The mask of attention, prepared for blocks of queries: which ranges of keys a block needs, so
// that keys hidden from the whole block cost nothing. Used by fused attention on the CPU. Internal
// to ops/.
//
// Reference: tests/reference/attention.cpp, attention_weights()
#pragma once

#include <limits>
#include <vector>

#include "../../core/math.h"
#include "mask.h"

namespace stretto {

/// An AttentionMask for scores [B, H, M, N] on the CPU.
class BlockMask {
 public:
  BlockMask(const AttentionMask& mask, const Shape& scores);

  /// True if every query sees one range of keys, range_of(), apart from padding.
  bool is_range() const { return is_range_; }
  /// Returns the keys that query i sees, for is_range().
  KeyRange range_of(int64_t i) const { return visible_keys(i + shift_, n_, mask_); }

  /// Returns the keys that any of the queries i0 … i0 + rows − 1 sees, as ascending ranges without
  /// common keys. They may contain hidden keys. There is always a range, which may be empty, and no
  /// other if is_range().
  std::vector<KeyRange> ranges(int64_t b, int64_t h, int64_t i0, int64_t rows) const;

  /// Sets to −∞ those of the scores of query i with `keys` that are hidden; if is_range(), only
  /// those of padding.
  template <class T>
  void hide(T* scores, int64_t b, int64_t h, int64_t i, KeyRange keys) const;

  /// Returns the number of keys of the longest range of a segment; N without segments.
  int64_t longest_segment() const { return longest_segment_; }

 private:
  KeyRange range_of_block(int64_t b, int64_t i0, int64_t rows) const;
  bool sees(int64_t b, int64_t h, int64_t i0, int64_t rows, KeyRange keys) const;
  bool is_global(int64_t b, int64_t key) const { return global_[b * n_ + key] != 0; }

  AttentionMask mask_;       // with contiguous tensors, bytes for masks and i64 for lengths
  const int64_t n_, shift_;  // N, N − M
  bool is_range_;
  std::vector<int32_t> first_, last_;  // [B, N]: the first and last key of each key's segment
  int64_t longest_segment_;
  const uint8_t *padding_, *global_, *hidden_;  // null: none
  const int64_t* prefix_;
  Shape hidden_strides_;  // of [B, H, M, N]
};

namespace block_mask {

template <class T>
constexpr T never = -std::numeric_limits<T>::infinity();

template <class T>
STRETTO_CLONES void hide_marked(T* s, const uint8_t* hidden, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] = hidden[j] ? never<T> : s[j];
}

template <class T>
STRETTO_CLONES void hide_unmarked(T* s, const uint8_t* visible, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] = visible[j] ? s[j] : never<T>;
}

template <class T>
STRETTO_CLONES void hide_unequal(T* s, const int32_t* ids, int32_t id, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] = ids[j] == id ? s[j] : never<T>;
}

}  // namespace block_mask

template <class T>
void BlockMask::hide(T* scores, int64_t b, int64_t h, int64_t i, KeyRange keys) const {
  using namespace block_mask;
  T* const s = scores - keys.begin;  // s[j] is the score of key j
  const int64_t count = keys.end - keys.begin, row = b * n_, position = i + shift_;
  const auto within = [&](int64_t j) { return std::clamp(j, keys.begin, keys.end); };
  if (padding_) hide_marked(scores, padding_ + row + keys.begin, count);
  if (is_range_) return;
  // Keys before `begin` or from `end` on are hidden, unless they are global.
  const auto hide_outside = [&](int64_t begin, int64_t end) {
    begin = within(begin), end = std::max(begin, within(end));
    if (global_) {
      hide_unmarked(scores, global_ + row + keys.begin, begin - keys.begin);
      hide_unmarked(s + end, global_ + row + end, keys.end - end);
    } else {
      std::fill(scores, s + begin, never<T>);
      std::fill(s + end, s + keys.end, never<T>);
    }
  };
  if (!global_ || !is_global(b, position))
    hide_outside(mask_.window > 0 ? position - mask_.window + 1 : 0,
                 mask_.window_after > 0 ? position + mask_.window_after : n_);
  if (mask_.causal || mask_.block > 0) {
    const int64_t end = within(std::max(position + 1, prefix_ ? prefix_[b] : 0));
    std::fill(s + end, s + keys.end, never<T>);
  }
  if (mask_.block > 0) std::fill(scores, s + within(range_of(i).begin), never<T>);
  if (!first_.empty())
    hide_unequal(scores, first_.data() + row + keys.begin, first_[size_t(row + position)], count);
  if (!hidden_) return;
  const Shape& to = hidden_strides_;
  const uint8_t* const from = hidden_ + b * to[0] + h * to[1] + i * to[2];
  if (to[3] == 1)
    hide_marked(scores, from + keys.begin, count);
  else if (*from)
    std::fill(scores, scores + count, never<T>);
}

}  // namespace stretto
