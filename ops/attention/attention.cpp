#include "ops/attention/attention.h"

#include <utility>

#include "ops/attention/attention_implementations.h"
#include "ops/attention/hidden_keys.h"
#include "ops/elementwise.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Attention with a sink for each query and head [B, H, M], fused: the softmax of the keys, times
// their share e^lse / (e^lse + e^sink) of all weights.
Tensor attention_with_query_sinks(AttentionOperands x) {
  const Tensor sinks = std::exchange(x.options.sinks, {});
  const Tensors out_and_lse = fused_attention_with_lse(x);
  return out_and_lse[0] * sigmoid(out_and_lse[1] - sinks).unsqueeze(-1);
}

// Attention to keys without hidden NaN or infinity; for `huge` see HiddenKeys. Unless the fused
// implementation multiplies bf16 natively, bf16 inputs are computed in f32.
Tensor attention_of(const AttentionOperands& x, bool huge) {
  const bool composed = x.options.implementation == Implementation::composed,
             on_cpu = x.q.device().is_cpu(),
             sinks_of_queries = x.options.sinks.defined() && x.options.sinks.dim() == 3;
  if (!on_cpu && !composed && !sinks_of_queries)
    if (const std::optional<Tensor> y = cuda_attention(x)) return *y;
  const bool fused = on_cpu && !composed;
  const DType type = x.q.dtype();
  if (is_narrow(type) && !(fused && fused_attention_takes(type) && !sinks_of_queries))
    return attention_of(converted(fused ? with_short_tables(x, f32) : x, f32), huge).to(type);
  if (!fused) return composed_attention(x, huge);
  return sinks_of_queries ? attention_with_query_sinks(x) : fused_attention(x);
}

AttentionOperands checked(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions&& o) {
  if (o.dropout > 0 && !o.dropout_key) o.dropout_key = next_random_key();
  AttentionOperands x{q, k, v, std::move(o)};
  check_attention(x);
  return x;
}

// Replaces keys and values that must not enter matrix products by zeros.
HiddenKeys clean(AttentionOperands& x) {
  HiddenKeys hidden = hidden_keys(x.q.size(1), x.q.size(2), x.k, x.v, x.options.mask);
  if (hidden.defined()) x.k = hidden.clean(x.k), x.v = hidden.clean(x.v);
  return hidden;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions o) {
  AttentionOperands x = checked(q, k, v, std::move(o));
  const HiddenKeys hidden = clean(x);
  return hidden.mark(attention_of(x, hidden.huge));
}

AttentionWithLse attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v,
                                    AttentionOptions o) {
  AttentionOperands x = checked(q, k, v, std::move(o));
  check(q.device().is_cpu() && !is_narrow(q.dtype()) &&
            x.options.implementation != Implementation::composed && !x.options.sinks.defined(),
        "attention_with_lse", "q ", q, "; accepted: f32 and f64 on the CPU, fused, without sinks");
  const HiddenKeys hidden = clean(x);
  const Tensors both = fused_attention_with_lse(x);
  return {hidden.mark(both[0]), hidden.mark(both[1].unsqueeze(-1)).squeeze(-1)};
}

Tensor attention_scores(const Tensor& q, const Tensor& k, AttentionOptions o) {
  o.relative_values = {};
  AttentionOperands x{q, k, k, std::move(o)};
  check_attention(x);
  if (const Tensor& padding = x.options.mask.key_padding; padding.defined())
    x.k = masked_fill(k, padding.unsqueeze(1).unsqueeze(-1), 0);
  return composed_scores(converted(x, compute_type(q.dtype()))).to(q.dtype());
}

Tensor attention_weights(const Tensor& q, const Tensor& k, AttentionOptions options) {
  if (const DType type = q.dtype(); is_narrow(type) && k.dtype() == type) {
    const AttentionOperands x = converted({q, k, {}, std::move(options)}, f32);
    return attention_weights(x.q, x.k, x.options).to(type);
  }
  const Tensor sinks = options.sinks;
  return softmax_with_sinks(attention_scores(q, k, std::move(options)), sinks);
}

}  // namespace stretto
