#include "ops/attention/attention.h"

#include "ops/attention/attention_composed.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_fused.h"
#include "ops/attention/hidden_keys.h"
#include "ops/elementwise.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace stretto {
namespace {

// bf16 is for what lies between ops, not for what they compute with.
bool widens(const Tensor& q) { return q.dtype() == bf16; }

AttentionOptions widened(AttentionOptions o) {
  for (Tensor* x : {&o.position_query, &o.keys.rows, &o.values.rows, &o.lag_bias.rows, &o.bias})
    if (x->defined()) *x = x->to(f32);
  return o;
}

// Of keys that are safe to multiply with; `huge`: HiddenKeys.
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                    bool huge) {
  if (q.device().is_cuda() && o.form != Form::composed)
    if (const std::optional<Tensor> y = cuda_attention(q, k, v, o)) return *y;
  const bool fused = q.device().is_cpu() && o.form != Form::composed;
  if (widens(q) && !(fused && fused_attention_takes(bf16)))
    return attention_of(q.to(f32), k.to(f32), v.to(f32), widened(o), huge).to(bf16);
  return fused ? fused_attention(q, k, v, o) : composed_attention(q, k, v, o, huge);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions o) {
  if (o.dropout > 0 && !o.dropout_key) o.dropout_key = next_random_key();
  check_attention(q, k, v, o);
  const HiddenKeys hidden = hidden_keys(q.size(1), q.size(2), k, v, o.mask);
  if (!hidden.defined()) return attention_of(q, k, v, o, hidden.huge);
  return hidden.mark(attention_of(q, hidden.clean(k), hidden.clean(v), o, hidden.huge));
}

AttentionAndSums attention_and_sums(const Tensor& q, const Tensor& k, const Tensor& v,
                                    AttentionOptions o) {
  if (o.dropout > 0 && !o.dropout_key) o.dropout_key = next_random_key();
  check_attention(q, k, v, o);
  check(q.device().is_cpu() && q.dtype() != bf16 && o.form != Form::composed, "attention_and_sums",
        "q ", q, "; accepted: f32 and f64 on the CPU, in the fused form");
  const HiddenKeys hidden = hidden_keys(q.size(1), q.size(2), k, v, o.mask);
  const bool clean = !hidden.defined();
  const Tensors both =
      fused_attention_and_sums(q, clean ? k : hidden.clean(k), clean ? v : hidden.clean(v), o);
  return {hidden.mark(both[0]), hidden.mark(both[1].unsqueeze(-1)).squeeze(-1)};
}

Tensor attention_scores(const Tensor& q, const Tensor& k, AttentionOptions o) {
  o.values = {};
  check_attention(q, k, k, o);
  Tensor keys = k;
  if (o.mask.key_padding.defined())
    keys = masked_fill(k, o.mask.key_padding.unsqueeze(1).unsqueeze(-1), 0);
  if (widens(q)) return composed_scores(q.to(f32), keys.to(f32), widened(o)).to(bf16);
  return composed_scores(q, keys, o);
}

Tensor attention_weights(const Tensor& q, const Tensor& k, AttentionOptions options) {
  if (widens(q) && q.dtype() == k.dtype())
    return attention_weights(q.to(f32), k.to(f32), widened(std::move(options))).to(bf16);
  return softmax(attention_scores(q, k, std::move(options)), -1);
}

}  // namespace stretto
