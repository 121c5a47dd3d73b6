#include "ops/attention/mask.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/device_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

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

// The keys hidden by settings that are not tensors.
Tensor hidden_by_position(int64_t n_queries, int64_t n_keys, const AttentionMask& mask,
                          Device device) {
  if (!mask.is_causal() && mask.window == 0 && mask.window_after == 0) return {};
  const auto make = [&] {
    Tensor hidden = ones({n_queries, n_keys}, {.dtype = boolean, .device = cpu});
    bool* at = hidden.data<bool>();
    for (int64_t i = 0; i < n_queries; ++i) {
      const KeyRange range = visible_keys(i + n_keys - n_queries, n_keys, mask);
      for (int64_t j = range.begin; j < range.end; ++j) at[i * n_keys + j] = false;
    }
    return hidden;
  };
  return device_table(device, make, "attention_mask", n_queries, n_keys, mask.causal, mask.window,
                      mask.block, mask.window_after);
}

Tensor either(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : logical_or(a, b);
}

Tensor unless(const Tensor& exempt, const Tensor& hidden) {
  return hidden.defined() ? logical_and(hidden, logical_not(exempt)) : hidden;
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

Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionMask& mask, Device device) {
  AttentionMask by_position = mask, windows = mask;
  windows.causal = false, windows.block = 0, windows.global_tokens = {};
  const auto of_queries = [&](const Tensor& of_keys) {  // [B, N] → [B, 1, M, 1]
    return of_keys.slice(1, n_keys - n_queries).unsqueeze(1).unsqueeze(3);
  };
  const auto keys = [](const Tensor& of_keys) { return of_keys.unsqueeze(1).unsqueeze(2); };
  Tensor hidden;
  if (mask.global_tokens.defined()) {
    const Tensor exempt = logical_or(keys(mask.global_tokens), of_queries(mask.global_tokens));
    hidden = unless(exempt, hidden_by_position(n_queries, n_keys, windows, device));
    by_position.window = by_position.window_after = 0;
  }
  if (mask.causal && mask.prefix_lengths.defined()) {
    const Tensor in_prefix = keys(lt(arange(n_keys, {.dtype = i64, .device = device}),
                                     mask.prefix_lengths.to(i64).unsqueeze(1)));
    const AttentionMask causal{.causal = true};
    hidden =
        either(hidden, unless(in_prefix, hidden_by_position(n_queries, n_keys, causal, device)));
    by_position.causal = false;
  }
  hidden = either(hidden, hidden_by_position(n_queries, n_keys, by_position, device));
  if (mask.segments.defined())
    hidden = either(hidden, ne(keys(mask.segments), of_queries(mask.segments)));
  if (mask.key_padding.defined()) hidden = either(hidden, keys(mask.key_padding));
  return either(hidden, mask.hidden);
}

}  // namespace stretto
