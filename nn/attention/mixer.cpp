#include "nn/attention/mixer.h"

#include "autograd/recompute.h"
#include "core/all_or_nothing.h"
#include "nn/attention/left_padding.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "Mixer";

}  // namespace

Tensor split_heads(const Tensor& x, int64_t n_heads) {
  return x.reshape({x.size(0), x.size(1), n_heads, x.size(2) / n_heads}).transpose(1, 2);
}

Tensor join_heads(const Tensor& x) { return x.transpose(1, 2).flatten(2); }

Tensor Mixer::operator()(const Tensor& x, const AttentionMask& mask, KeyValueCache* cache,
                         const ForwardContext& forward) const {
  const MixerTraits can = traits();
  const char* const setting = setting_besides(mask, {"causal", "key_padding", "segments"});
  AttentionMask visible = mask;
  if (!visible.segments.defined()) visible.segments = forward.segments;
  const char* const missing = setting                              ? setting
                              : !mask.causal && !can.bidirectional ? "a mask that is not causal"
                              : mask.key_padding.defined() && !can.key_padding    ? "key_padding"
                              : !forward.left_padding.empty() && !can.key_padding ? "left padding"
                              : visible.segments.defined() && !can.segments       ? "segments"
                              : forward.prefix_lengths.defined()                  ? "prefix_lengths"
                              : forward.sequence_group ? "sequence parallelism"
                              : cache && !can.cache    ? "a cache"
                                                       : nullptr;
  check(!missing, op, label(), " does not support ", missing ? missing : "",
        "; Mixer::traits() has what it does");
  check(!visible.segments.defined() || forward.left_padding.empty(), op,
        "packed segments with padding; use one of them");
  check(x.dim() == 3, op, "input ", x, "; must be [B, M, d_model]");
  const std::vector<int64_t>& left = forward.left_padding;
  check_padding(op, left, x.size(0), mask);
  const int64_t m = x.size(1);
  if (!cache) {
    if (!left.empty()) visible.key_padding = padding_mask(left, 0, m, x.device());
    return mix(x, visible, nullptr, forward);
  }
  check_not_recomputed(op, "a cache");
  check(cache->limit == 0 && cache->kept == 0, op, label(), " with a cache limited to ",
        cache->limit, " positions; accepted: no limit");
  check(!visible.segments.defined(), op, "packed segments with a cache; use one of them");
  return all_or_nothing(*cache, [&](KeyValueCache& after) {
    claim(op, after, *this);
    const int64_t seen = after.state.length, first = can.cached_padding ? 0 : seen;
    if (!left.empty()) {
      visible.key_padding = padding_mask(left, first, seen + m - first, x.device());
    } else if (const Tensor& padding = mask.key_padding; padding.defined()) {
      const Shape all{x.size(0), seen + m};
      check(padding.shape() == all, op, "key_padding ", padding, "; must be bool or u8 ", all,
            ", with one column for each cached and each new position");
      visible.key_padding = padding.slice(1, first);
    }
    Tensor y = mix(x, visible, &after, forward);
    after.state.length = seen + m;
    return y;
  });
}

KeyValueCache Mixer::make_cache(int64_t limit, int64_t kept) const {
  check(limit == 0 && kept == 0, op, label(), " with a cache limited to ", limit,
        " positions; accepted: no limit");
  return {};
}

Tensor Mixer::mix(const Tensor&, const AttentionMask&, KeyValueCache*,
                  const ForwardContext&) const {
  fail(op, label(), " has no output; override mix()");
}

}  // namespace stretto::nn
