#include <limits>

#include "ops/attention/attention_implementations.h"
#include "ops/attention/skew.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Expands key heads, each shared by a group of query heads, to one per query head. Copies x unless
// there is one key head or one query head per key head.
Tensor per_head(const Tensor& x, int64_t heads) {
  const int64_t groups = x.size(1);
  if (groups == heads) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), groups, heads / groups, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

}  // namespace

Tensor composed_scores(const AttentionOperands& x) {
  const auto& [q, k, v, o] = x;
  const int64_t heads = q.size(1), m = q.size(2), n = k.size(2);
  const double scale = score_scale(q, o);
  Tensor scores = matmul(q, per_head(k, heads).transpose(-1, -2));
  if (o.relative_keys.defined() && n > 0) {
    const Tensor& p = o.relative_query.defined() ? o.relative_query : q;
    const Tensor rows = skewed_rows(o.relative_keys, m, n, o.mask.is_causal());
    scores = scores + skew(matmul(p, rows.transpose(-1, -2)), n);
  }
  scores = scores * scale;
  scores = with_score_terms(scores, o);
  if (o.soft_cap > 0) scores = tanh(scores * (1 / o.soft_cap)) * o.soft_cap;
  constexpr double never = -std::numeric_limits<double>::infinity();
  if (const Tensor mask = attention_mask(m, n, o.mask, q.device()); mask.defined())
    scores = masked_fill(scores, mask, never);
  return scores;
}

Tensor softmax_with_sinks(const Tensor& scores, const Tensor& sinks) {
  if (!sinks.defined()) return softmax(scores, -1);
  const Tensor each = sinks.dim() == 1 ? sinks.unsqueeze(1) : sinks;  // [H, 1] or [B, H, M]
  const Tensor column =
      each.unsqueeze(-1).expand({scores.size(0), scores.size(1), scores.size(2), 1});
  return softmax(cat({scores, column}, -1), -1).slice(-1, 0, -1);
}

Tensor composed_attention(const AttentionOperands& x, bool huge) {
  const auto& [q, k, v, o] = x;
  const int64_t m = q.size(2), n = k.size(2);
  Tensor weights = softmax_with_sinks(composed_scores(x), o.sinks);
  // If the value of a masked key is huge, the gradient of its attention weight may be infinite, and
  // the product of this gradient with the weight, which is 0, would be NaN. masked_fill sets the
  // gradient to 0.
  if (const Tensor mask = huge ? attention_mask(m, n, o.mask, q.device()) : Tensor();
      mask.defined())
    weights = masked_fill(weights, mask, 0);
  if (o.dropout > 0) weights = dropout(weights, o.dropout, *o.dropout_key);
  Tensor out = matmul(weights, per_head(v, q.size(1)));
  if (o.relative_values.defined() && n > 0) {
    const Tensor rows = skewed_rows(o.relative_values, m, n, o.mask.is_causal());
    out = out + matmul(unskew(weights, rows.size(1)), rows);
  }
  return out;
}

SavedAttention::SavedAttention(const AttentionOperands& x) : settings_(x) {
  const Tensors all = x.tensors();
  settings_ = x.with(Tensors(all.size()));
  tensors_.assign(all.begin(), all.end());
}

Tensors SavedAttention::composed_gradients(Backward& b) const {
  return composed_gradient(
      b,
      [this](const Tensors& tensors) {
        const AttentionOperands x = settings_.with(tensors);
        const DType type = x.q.dtype();
        return composed_attention(converted(x, compute_type(type))).to(type);
      },
      values_of(tensors_));
}

}  // namespace stretto
