// Linear attention in its composed form, and what both forms share: checks and the state.
#include "ops/attention/linear_attention.h"

#include <cmath>

#include "autograd/replay.h"
#include "core/all_or_nothing.h"
#include "ops/attention/attention.h"
#include "ops/attention/linear_attention_chunked.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

constexpr const char* op = "linear_attention";

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v,
                     const LinearAttentionOptions& o) {
  const bool fit = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) &&
                   k.size(0) == v.size(0) && q.size(3) == k.size(3) && k.size(1) == v.size(1) &&
                   k.size(2) == v.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  check(fit, op, "q ", q, ", k ", k, ", v ", v,
        "; accepted: q [B, H, M, F], k [B, G, N, F], v [B, G, N, Dv] with H a multiple of G");
  check(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op, "q ", q,
        ", k ", k, ", v ", v, "; all must have one floating dtype");
  check_same_device(op, {&q, &k, &v, &o.key_padding});
  check(
      !o.key_padding.defined() ||
          (is_mask(o.key_padding.dtype()) && o.key_padding.shape() == Shape{q.size(0), k.size(2)}),
      op, "key_padding ", o.key_padding, "; must be bool or u8 [", q.size(0), ", ", k.size(2), "]");
  check(std::isfinite(o.eps) && o.eps >= 0, op, "eps ", o.eps, "; must be 0 or more");
  check(o.chunk >= 1, op, "chunk ", o.chunk, "; must be at least 1");
  check(o.form != LinearForm::chunked || q.device().is_cpu(), op,
        "no chunked form for CUDA tensors; use LinearForm::composed");
}

void check_state(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state,
                 const LinearAttentionOptions& o) {
  check(!o.causal || q.size(2) <= k.size(2) || k.size(2) == 0, op, q.size(2), " queries and ",
        k.size(2),
        " keys continue a state, causal; it needs a key for each query (or none at "
        "all), as a query cannot stand before keys that the state has taken in");
  if (!state.sums.defined()) return;
  const Shape shape{k.size(0), k.size(1), k.size(3), v.size(3) + 1};
  const DType dtype = q.dtype() == f64 ? f64 : f32;
  check(state.sums.shape() == shape && state.sums.dtype() == dtype, op, "the state is ", state.sums,
        "; for k ", k, " and v ", v, " it must be ", dtype, " ", shape);
  check_same_device(op, {&q, &state.sums});
}

// a / b with zeros where b is 0, and no gradient there.
Tensor guarded_ratio(const Tensor& a, const Tensor& b) {
  const Tensor nothing = eq(b, 0);
  return masked_fill(a / masked_fill(b, nothing, 1), nothing, 0);
}

Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, LinearState* state,
                const LinearAttentionOptions& o) {
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1), m = q.size(2),
                n = k.size(2);
  Tensor keys = k, values = v;
  if (o.key_padding.defined()) {
    const Tensor hidden = o.key_padding.unsqueeze(1).unsqueeze(-1);
    keys = masked_fill(k, hidden, 0);
    values = masked_fill(v, hidden, 0);
  }
  const Tensor queries = q.reshape({batch, groups, heads / groups, m, q.size(3)});
  Tensor products = matmul(queries, keys.unsqueeze(2).transpose(-1, -2));
  if (o.causal)
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
  return guarded_ratio(numerator, denominator).reshape({batch, heads, m, v.size(3)});
}

bool recorded(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state) {
  return recording({q, k, v}) || (state.sums.defined() && recording({state.sums}));
}

Tensor in_f32(const Tensor& x) { return x.dtype() == bf16 ? x.to(f32) : x; }

}  // namespace

Tensor LinearState::s() const { return sums.slice(3, 0, -1); }
Tensor LinearState::z() const { return sums.select(3, -1); }

void LinearState::reorder(const Tensor& rows) {
  if (sums.defined()) sums = index_select(sums, 0, rows);
}

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        LinearAttentionOptions options) {
  check_arguments(q, k, v, options);
  if (q.dtype() == bf16)
    return linear_attention(q.to(f32), k.to(f32), v.to(f32), std::move(options)).to(bf16);
  if (options.form == LinearForm::composed || !q.device().is_cpu())
    return composed(q, k, v, nullptr, options);
  return chunked_linear_attention(q, k, v, nullptr, options);
}

Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                        LinearAttentionOptions options) {
  check_not_replayed(op, "a state");
  check_arguments(q, k, v, options);
  check_state(q, k, v, state, options);
  const bool records = recorded(q, k, v, state);
  check(options.form != LinearForm::chunked || !records, op,
        "the chunked form has no gradient through its state; use LinearForm::composed, or a NoGrad "
        "guard");
  // Queries without keys of their own stand behind all keys there are.
  if (k.size(2) == 0) options.causal = false;
  return all_or_nothing(state, [&](LinearState& after) {
    const Tensor wide_q = in_f32(q), wide_k = in_f32(k), wide_v = in_f32(v);
    const bool by_chunks = options.form != LinearForm::composed && q.device().is_cpu() && !records;
    const Tensor y = by_chunks ? chunked_linear_attention(wide_q, wide_k, wide_v, &after, options)
                               : composed(wide_q, wide_k, wide_v, &after, options);
    after.length += k.size(2);
    return y.to(q.dtype());
  });
}

}  // namespace stretto
