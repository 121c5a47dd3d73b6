#include "ops/attention/block_mask.h"

#include <algorithm>
#include <unordered_map>

#include "ops/view.h"

namespace stretto {
namespace {

constexpr int64_t block_keys = 64;  // keys are skipped in blocks of this size

Tensor bytes(const Tensor& x) { return x.defined() ? x.detach().to(u8).contiguous() : Tensor(); }

const uint8_t* data(const Tensor& x) { return x.defined() ? x.data<uint8_t>() : nullptr; }

}  // namespace

BlockMask::BlockMask(const AttentionMask& mask, const Shape& scores)
    : mask_(mask),
      n_(scores[3]),
      shift_(n_ - scores[2]),
      is_range_(
          !setting_besides(mask, {"causal", "window", "block", "key_padding", "window_after"})),
      longest_segment_(n_) {
  // Windows beyond all keys hide none. Shorter ones can be added to positions without overflow.
  const int64_t most = n_ + scores[2] + 1;
  mask_.window = std::min(mask_.window, most);
  mask_.window_after = std::min(mask_.window_after, most);
  for (Tensor* x : {&mask_.key_padding, &mask_.global_tokens, &mask_.hidden}) *x = bytes(*x);
  padding_ = data(mask_.key_padding);
  global_ = data(mask_.global_tokens);
  hidden_ = data(mask_.hidden);
  if (hidden_) hidden_strides_ = mask_.hidden.expand(scores).strides();
  if (hidden_ && n_ == 1) hidden_strides_[3] = 0;
  if (Tensor& x = mask_.prefix_lengths; x.defined()) x = x.to(i64).contiguous();
  prefix_ = mask_.prefix_lengths.defined() ? mask_.prefix_lengths.data<int64_t>() : nullptr;
  if (!mask_.segments.defined()) return;
  const std::vector<int64_t> ids = mask_.segments.to_vector<int64_t>();
  first_.resize(ids.size());
  last_.resize(ids.size());
  longest_segment_ = 0;
  for (int64_t b = 0; b < scores[0]; ++b) {
    const auto of = [&](int64_t j) { return ids[size_t(b * n_ + j)]; };
    std::unordered_map<int64_t, std::pair<int32_t, int32_t>> ends;
    for (int64_t j = 0; j < n_; ++j)
      ends.try_emplace(of(j), int32_t(j), 0).first->second.second = int32_t(j);
    for (int64_t j = 0; j < n_; ++j) {
      const auto [first, last] = ends.at(of(j));
      first_[size_t(b * n_ + j)] = first, last_[size_t(b * n_ + j)] = last;
      longest_segment_ = std::max<int64_t>(longest_segment_, last - first + 1);
    }
  }
}

// The smallest range that contains all visible keys, if windows did not end at global tokens.
KeyRange BlockMask::range_of_block(int64_t b, int64_t i0, int64_t rows) const {
  const int64_t first = i0 + shift_, last = first + rows - 1;
  KeyRange all{visible_keys(first, n_, mask_).begin, visible_keys(last, n_, mask_).end};
  if (prefix_) all.end = std::min(all.end, std::max(last + 1, prefix_[b]));
  if (!first_.empty()) {
    const auto begin = first_.begin() + b * n_ + first, end = last_.begin() + b * n_ + first;
    all.begin = std::max<int64_t>(all.begin, *std::min_element(begin, begin + rows));
    all.end = std::min<int64_t>(all.end, *std::max_element(end, end + rows) + 1);
  }
  all.end = std::max(all.begin, all.end);
  return all;
}

// True if any of the queries may see any of the keys.
bool BlockMask::sees(int64_t b, int64_t h, int64_t i0, int64_t rows, KeyRange keys) const {
  const int64_t first = i0 + shift_, last = first + rows - 1;
  if (global_) {
    const auto any_global = [&](int64_t begin, int64_t end) {
      const uint8_t* const row = global_ + b * n_;
      return std::any_of(row + begin, row + end, [](uint8_t x) { return x != 0; });
    };
    const bool outside = (mask_.window > 0 && keys.end <= first - mask_.window + 1) ||
                         (mask_.window_after > 0 && keys.begin >= last + mask_.window_after);
    if (outside && !any_global(keys.begin, keys.end) && !any_global(first, last + 1)) return false;
  }
  if (!hidden_) return true;
  const Shape& to = hidden_strides_;
  for (int64_t i = i0; i < i0 + rows; ++i) {
    const uint8_t* const from = hidden_ + b * to[0] + h * to[1] + i * to[2];
    const int64_t begin = keys.begin * to[3], end = to[3] ? keys.end : 1;
    if (std::find(from + begin, from + end, 0) != from + end) return true;
  }
  return false;
}

std::vector<KeyRange> BlockMask::ranges(int64_t b, int64_t h, int64_t i0, int64_t rows) const {
  const KeyRange all = range_of_block(b, i0, rows);
  if (!global_ && !hidden_) return {all};
  std::vector<KeyRange> found;
  for (int64_t j = all.begin, end; j < all.end; j = end) {
    end = std::min(all.end, (j / block_keys + 1) * block_keys);
    if (!sees(b, h, i0, rows, {j, end})) continue;
    if (!found.empty() && found.back().end == j)
      found.back().end = end;
    else
      found.push_back({j, end});
  }
  if (found.empty()) found.push_back({all.begin, all.begin});
  return found;
}

}  // namespace stretto
