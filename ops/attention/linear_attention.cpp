#include "ops/attention/linear_attention.h"

#include "autograd/replay.h"
#include "core/all_or_nothing.h"
#include "ops/attention/linear_attention_chunked.h"
#include "ops/attention/linear_attention_composed.h"
#include "ops/elementwise.h"

namespace stretto {
namespace {

constexpr const char* op = "linear_attention";

bool recorded(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state) {
  return recording({q, k, v}) || (state.sums.defined() && recording({state.sums}));
}

Tensor in_f32(const Tensor& x) { return x.dtype() == bf16 ? x.to(f32) : x; }

}  // namespace

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        LinearAttentionOptions options) {
  check_linear_attention(q, k, v, options);
  if (options.form == Form::composed || !q.device().is_cpu())
    return composed_linear_attention(in_f32(q), in_f32(k), in_f32(v), nullptr, options)
        .to(q.dtype());
  return chunked_linear_attention(q, k, v, nullptr, options);
}

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                        LinearAttentionOptions options) {
  check_not_replayed(op, "a state");
  check_linear_attention(q, k, v, options);
  check_linear_state(q, k, v, state, options);
  const bool records = recorded(q, k, v, state);
  check(options.form != Form::fused || !records, op,
        "the fused form has no gradient through its state; use Form::composed, or a NoGrad "
        "guard");
  // Queries without keys of their own stand behind all keys there are.
  if (k.size(2) == 0) options.mask.causal = false;
  return all_or_nothing(state, [&](LinearState& after) {
    const bool fuses = options.form != Form::composed && q.device().is_cpu() && !records;
    const Tensor y =
        fuses ? chunked_linear_attention(q, k, v, &after, options)
              : composed_linear_attention(in_f32(q), in_f32(k), in_f32(v), &after, options);
    after.length += k.size(2);
    return y.to(q.dtype());
  });
}

}  // namespace stretto
