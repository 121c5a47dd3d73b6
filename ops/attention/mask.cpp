#include "ops/attention/mask.h"

#include "core/device_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto {
namespace {

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
