#include "ops/attention/linear_attention_implementations.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

// a / b, with value and gradient 0 where b is 0.
Tensor guarded_ratio(const Tensor& a, const Tensor& b) {
  const Tensor zero = eq(b, 0);
  return masked_fill(a / masked_fill(b, zero, 1), zero, 0);
}

}  // namespace

Tensor composed_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 LinearState* state, const LinearAttentionOptions& o,
                                 Tensor* denominators) {
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1), m = q.size(2),
                n = k.size(2);
  Tensor keys = k, values = v;
  if (o.mask.key_padding.defined()) {
    const Tensor hidden = o.mask.key_padding.unsqueeze(1).unsqueeze(-1);
    keys = masked_fill(k, hidden, 0);
    values = masked_fill(v, hidden, 0);
  }
  const Tensor queries = q.reshape({batch, groups, heads / groups, m, q.size(3)});
  Tensor products = matmul(queries, keys.unsqueeze(2).transpose(-1, -2));
  if (o.mask.causal)
    products = masked_fill(products, attention_mask(m, n, {.causal = true}, q.device()), 0);
  Tensor numerator = matmul(products, values.unsqueeze(2));
  Tensor denominator = sum(products, {-1}, true);
  if (state && state->sums.defined()) {
    numerator = numerator + matmul(queries, state->s().unsqueeze(2));
    denominator = denominator + matmul(queries, state->z().unsqueeze(2).unsqueeze(-1));
  }
  if (state) {
    const Tensor s = matmul(keys.transpose(-1, -2), values), z = sum(keys, {2});
    const Tensor sums = cat({s, z.unsqueeze(-1)}, 3);
    state->sums = state->sums.defined() ? state->sums + sums : sums;
  }
  if (o.eps > 0) denominator = denominator + o.eps;
  if (denominators) *denominators = denominator.detach().reshape({batch, heads, m});
  return guarded_ratio(numerator, denominator).reshape({batch, heads, m, v.size(3)});
}

}  // namespace stretto
