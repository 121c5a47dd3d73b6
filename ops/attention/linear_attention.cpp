#include "ops/attention/linear_attention.h"

#include "autograd/recompute.h"
#include "core/all_or_nothing.h"
#include "ops/attention/hidden_keys.h"
#include "ops/attention/linear_attention_implementations.h"
#include "ops/elementwise.h"

namespace stretto {
namespace {

constexpr const char* op = "linear_attention";

bool recorded(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state) {
  return recording({q, k, v}) || (state.sums.defined() && recording({state.sums}));
}

Tensor in_f32(const Tensor& x) { return x.to(compute_type(x.dtype())); }

// The fused implementation for these arguments, or null if there is none.
decltype(&composed_linear_attention) fused_implementation(const Tensor& q, const Tensor& k,
                                                          const Tensor& v, const LinearState* state,
                                                          const LinearAttentionOptions& o) {
  const bool on_cpu = q.device().is_cpu();
  const bool fused = o.implementation != Implementation::composed &&
                     (on_cpu || has_device_linear_attention(q, k, v, state));
  check(fused || o.implementation != Implementation::fused, op, "no fused implementation for q ", q,
        ", k ", k, ", v ", v, "; use Implementation::composed");
  return !fused ? nullptr : on_cpu ? chunked_linear_attention : device_linear_attention;
}

// Computes linear attention by the chosen implementation. Unless `state` is null, its
// sums are replaced.
Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v, LinearState* state,
                const LinearAttentionOptions& o, Tensor* denominators = nullptr) {
  if (const auto fused = fused_implementation(q, k, v, state, o))
    return fused(q, k, v, state, o, denominators);
  return composed_linear_attention(in_f32(q), in_f32(k), in_f32(v), state, o, denominators)
      .to(q.dtype());
}

// The same, but a NaN or an infinity in a key or value does not reach earlier queries. The last
// query sees all keys, so any NaN or infinity changes its output.
Tensor attended_safely(const Tensor& q, const Tensor& k, const Tensor& v, LinearState* state,
                       const LinearAttentionOptions& o, Tensor* denominators = nullptr) {
  LinearState before = state ? *state : LinearState();
  const Tensor y = attended(q, k, v, state, o, denominators);
  if (!o.mask.causal || q.size(2) < 2 || !q.device().is_cpu() || all_finite(y)) return y;
  const HiddenKeys hidden = hidden_keys(q.size(1), q.size(2), k, v, o.mask);
  if (!hidden.defined()) return y;
  return hidden.mark(attended(q, hidden.clean(k), hidden.clean(v), state ? &before : nullptr, o));
}

}  // namespace

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        LinearAttentionOptions options) {
  check_linear_attention(q, k, v, options);
  return attended_safely(q, k, v, nullptr, options);
}

LinearAttentionAndDenominators linear_attention_and_denominators(const Tensor& q, const Tensor& k,
                                                                 const Tensor& v,
                                                                 LinearAttentionOptions options) {
  check_linear_attention(q, k, v, options);
  Tensor denominators;
  Tensor y = attended_safely(q, k, v, nullptr, options, &denominators);
  return {y, denominators};
}

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                        LinearAttentionOptions options) {
  check_not_recomputed(op, "a state");
  check_linear_attention(q, k, v, options);
  check_linear_state(q, k, v, state, options);
  // On the CPU the fused implementation has no gradient through the state.
  const bool records = q.device().is_cpu() && recorded(q, k, v, state);
  check(options.implementation != Implementation::fused || !records, op,
        "the fused implementation has no gradient through its state; use Implementation::composed, "
        "or a NoGrad guard");
  if (records) options.implementation = Implementation::composed;
  // Queries without new keys come after all keys in the state.
  if (k.size(2) == 0) options.mask.causal = false;
  return all_or_nothing(state, [&](LinearState& after) {
    const Tensor y = attended_safely(q, k, v, &after, options);
    after.length += k.size(2);
    return y;
  });
}

}  // namespace stretto
