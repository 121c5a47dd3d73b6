#include "ops/attention/mask.h"

#include <algorithm>

#include "core/device_table.h"
#include "ops/create.h"

namespace stretto {

RelativeRange visible_range(int64_t n_queries, int64_t n_keys, const AttentionMask& mask) {
  int64_t past = n_keys - 1;
  if (mask.window > 0) past = std::min(past, mask.window - 1);
  if (mask.block > 0) past = std::min(past, 2 * mask.block - 1);
  return {.past = std::max<int64_t>(past, 0),
          .future = mask.is_causal() ? 0 : std::max<int64_t>(n_queries - 1, 0)};
}

KeyRange visible_keys(int64_t position, int64_t n_keys, const AttentionMask& mask) {
  KeyRange range{0, n_keys};
  if (mask.is_causal()) range.end = std::clamp<int64_t>(position + 1, 0, n_keys);
  if (mask.window > 0) range.begin = std::max<int64_t>(0, position - mask.window + 1);
  if (mask.block > 0) range.begin = std::max<int64_t>(0, (position / mask.block - 1) * mask.block);
  return range;
}

Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionMask& mask, Device device) {
  if (!mask.is_causal() && mask.window == 0) return {};
  const auto make = [&] {
    Tensor hidden = ones({n_queries, n_keys}, {.dtype = boolean});
    bool* at = hidden.data<bool>();
    for (int64_t i = 0; i < n_queries; ++i) {
      const KeyRange range = visible_keys(i + n_keys - n_queries, n_keys, mask);
      for (int64_t j = range.begin; j < range.end; ++j) at[i * n_keys + j] = false;
    }
    return hidden;
  };
  return device_table(device, make, "attention_mask", n_queries, n_keys, mask.causal, mask.window,
                      mask.block);
}

}  // namespace stretto
