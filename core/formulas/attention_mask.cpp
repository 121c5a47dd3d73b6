#include "core/formulas/attention_mask.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace stretto {
namespace {

// Positions in the sequence that `before` and `after` leave visible around the query.
struct Reach {
  int64_t before, after;  // largest visible distance, at most `most`
};

Reach reach(const AttentionMask& mask, int64_t most) {
  Reach r{most, most};
  if (mask.window > 0 && !mask.global_tokens.defined()) r.before = std::min(most, mask.window - 1);
  if (mask.window_after > 0 && !mask.global_tokens.defined())
    r.after = std::min(most, mask.window_after - 1);
  if (mask.is_causal()) r.after = 0;
  return r;
}

}  // namespace

RelativeRange visible_range(int64_t n_queries, int64_t n_keys, const AttentionMask& mask) {
  int64_t past = reach(mask, n_keys - 1).before;
  if (mask.block > 0 && mask.block < n_keys) past = std::min(past, 2 * mask.block - 1);
  return {.past = std::max<int64_t>(past, 0),
          .future = std::max<int64_t>(reach(mask, n_queries - 1).after, 0)};
}

KeyRange visible_keys(int64_t position, int64_t n_keys, const AttentionMask& mask) {
  const int64_t unlimited = n_keys + std::abs(position);
  const auto [before, after] = reach(mask, unlimited);
  KeyRange range{0, n_keys};
  if (after < unlimited) range.end = std::clamp<int64_t>(position + after + 1, 0, n_keys);
  if (before < unlimited) range.begin = std::max<int64_t>(0, position - before);
  if (mask.block > 0) range.begin = std::max<int64_t>(0, (position / mask.block - 1) * mask.block);
  return range;
}

const char* setting_besides(const AttentionMask& mask,
                            std::initializer_list<std::string_view> accepted) {
  const std::pair<const char*, bool> settings[] = {
      {"causal", mask.causal},
      {"window", mask.window > 0},
      {"block", mask.block > 0},
      {"key_padding", mask.key_padding.defined()},
      {"window_after", mask.window_after > 0},
      {"segments", mask.segments.defined()},
      {"prefix_lengths", mask.prefix_lengths.defined()},
      {"global_tokens", mask.global_tokens.defined()},
      {"hidden", mask.hidden.defined()}};
  for (const auto& [name, set] : settings)
    if (set && std::find(accepted.begin(), accepted.end(), name) == accepted.end()) return name;
  return nullptr;
}

}  // namespace stretto
