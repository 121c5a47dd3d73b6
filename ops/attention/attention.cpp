// Attention in its composed form: the papers' formulas in differentiable ops. Also everything that
// both forms share: checks, masks, and how a table's policy becomes rows.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "ops/attention/attention_fused.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace stretto {
namespace {

constexpr const char* op = "attention";

void check_table(const char* what, const RelativeTable& table, int64_t heads, int64_t last,
                 const AttentionOptions& o, int64_t n_queries, int64_t n_keys) {
  if (!table.defined()) return;
  const Tensor& rows = table.rows;
  const bool vector = last >= 0;
  check(rows.dim() == (vector ? 3 : 2) && (rows.size(0) == heads || rows.size(0) == 1) &&
            (!vector || rows.size(2) == last),
        op, what, " table ", rows, "; must be [", heads, " or 1, R",
        vector ? str(", ", last) : std::string(), "]");
  check(table.zero_row >= 0 && table.zero_row < rows.size(1), op, what, " table has ", rows.size(1),
        " rows, but its row of relative position 0 is ", table.zero_row);
  if (table.beyond != Beyond::error) return;
  const int64_t past = furthest_past(n_keys, o), future = o.causal ? 0 : n_queries - 1;
  check(table.zero_row >= past && rows.size(1) - 1 - table.zero_row >= future, op, what,
        " table reaches from ", -table.zero_row, " to ", rows.size(1) - 1 - table.zero_row,
        ", but relative positions from ", -past, " to ", future,
        " occur; make the table longer, or let `beyond` be zero or clip");
}

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const bool fit = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) &&
                   k.size(0) == v.size(0) && q.size(3) == k.size(3) && k.size(1) == v.size(1) &&
                   k.size(2) == v.size(2) && k.size(1) > 0 && q.size(1) % k.size(1) == 0;
  check(fit, op, "q ", q, ", k ", k, ", v ", v,
        "; accepted: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] with H a multiple of G");
  check(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op, "q ", q,
        ", k ", k, ", v ", v, "; all must have one floating dtype");
  check_same_device(op, {&q, &k, &v, &o.key_padding, &o.position_query, &o.keys.rows,
                         &o.values.rows, &o.lag_bias.rows, &o.bias});
  const int64_t batch = q.size(0), heads = q.size(1), m = q.size(2), n = k.size(2);
  check(o.window >= 0 && o.block >= 0, op, "window ", o.window, ", block ", o.block,
        "; must not be negative");
  check(o.window == 0 || o.block == 0, op, "window and block are both set; choose one");
  check(!o.key_padding.defined() ||
            (is_mask(o.key_padding.dtype()) && o.key_padding.shape() == Shape{batch, n}),
        op, "key_padding ", o.key_padding, "; must be bool or u8 [", batch, ", ", n, "]");
  check(o.dropout >= 0 && o.dropout <= 1, op, "dropout ", o.dropout, "; accepted: 0 to 1");
  auto check_dtype = [&q](const char* what, const Tensor& x) {
    check(!x.defined() || x.dtype() == q.dtype(), op, what, x, " for q ", q, "; dtypes must agree");
  };
  check_dtype("position_query ", o.position_query);
  check_dtype("key table ", o.keys.rows);
  check_dtype("value table ", o.values.rows);
  check_dtype("bias table ", o.lag_bias.rows);
  check_dtype("bias ", o.bias);
  check(!o.position_query.defined() || o.position_query.shape() == q.shape(), op, "position_query ",
        o.position_query, " for q ", q, "; shapes must agree");
  check(
      !o.position_query.defined() || o.keys.defined(), op,
      "position_query without a key table: there are no rows of relative positions for it to meet");
  check_table("key", o.keys, heads, q.size(3), o, m, n);
  check_table("value", o.values, heads, v.size(3), o, m, n);
  check_table("bias", o.lag_bias, heads, -1, o, m, n);
  if (o.bias.defined())
    check(broadcast_shapes(op, o.bias.shape(), {batch, heads, m, n}) == Shape{batch, heads, m, n},
          op, "bias ", o.bias, "; must broadcast to [", batch, ", ", heads, ", ", m, ", ", n, "]");
}

// Key heads shared by groups of query heads, shown once per query head.
Tensor per_head(const Tensor& x, int64_t heads) {
  const int64_t groups = x.size(1);
  if (groups == heads) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), groups, heads / groups, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

// Relative positions −(N − 1) … : the columns that skew expects.
Tensor skewed_rows(const RelativeTable& table, int64_t m, int64_t n, bool causal) {
  return relative_rows(table, -(n - 1), causal ? n : n + m - 1);
}

Tensor composed_scores(const Tensor& q, const Tensor& k, const AttentionOptions& o) {
  const int64_t heads = q.size(1), m = q.size(2), n = k.size(2);
  const double scale = score_scale(q, o);
  Tensor scores = matmul(q, per_head(k, heads).transpose(-1, -2));
  if (o.keys.defined() && n > 0) {
    const Tensor& p = o.position_query.defined() ? o.position_query : q;
    const Tensor rows = skewed_rows(o.keys, m, n, o.causal);
    scores = scores + skew(matmul(p, rows.transpose(-1, -2)), n);
  }
  scores = scores * scale;
  if (o.lag_bias.defined() && n > 0) {
    const Tensor b = skewed_rows(o.lag_bias, m, n, o.causal);
    scores = scores + skew(b.unsqueeze(1).expand({b.size(0), m, b.size(1)}), n);
  }
  if (o.bias.defined()) scores = scores + o.bias;
  constexpr double never = -std::numeric_limits<double>::infinity();
  if (const Tensor mask = attention_mask(m, n, o, q.device()); mask.defined())
    scores = masked_fill(scores, mask, never);
  if (o.key_padding.defined())
    scores = masked_fill(scores, o.key_padding.unsqueeze(1).unsqueeze(1), never);
  return scores;
}

Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const int64_t m = q.size(2), n = k.size(2);
  Tensor weights = softmax(composed_scores(q, k, o), -1);
  if (o.dropout > 0) weights = dropout(weights, o.dropout, *o.dropout_key);
  Tensor out = matmul(weights, per_head(v, q.size(1)));
  if (o.values.defined() && n > 0) {
    const Tensor rows = skewed_rows(o.values, m, n, o.causal);
    out = out + matmul(unskew(weights, rows.size(1)), rows);
  }
  return out;
}

// bf16 is for what lies between ops, not for what they compute with.
bool widens(const Tensor& q) { return q.dtype() == bf16 && q.device().is_cpu(); }

AttentionOptions widened(AttentionOptions o) {
  for (Tensor* x : {&o.position_query, &o.keys.rows, &o.values.rows, &o.lag_bias.rows, &o.bias})
    if (x->defined()) *x = x->to(f32);
  return o;
}

// Local attention in blocks is causal.
AttentionOptions completed(AttentionOptions o) {
  if (o.block > 0) o.causal = true;
  if (o.dropout > 0 && !o.dropout_key) o.dropout_key = next_random_key();
  return o;
}

}  // namespace

double score_scale(const Tensor& q, const AttentionOptions& o) {
  return o.scale.value_or(1 / std::sqrt(double(std::max<int64_t>(q.size(3), 1))));
}

int64_t furthest_past(int64_t n_keys, const AttentionOptions& o) {
  int64_t past = n_keys - 1;
  if (o.window > 0) past = std::min(past, o.window - 1);
  if (o.block > 0) past = std::min(past, 2 * o.block - 1);
  return std::max<int64_t>(past, 0);
}

KeyRange visible_keys(int64_t position, int64_t n_keys, const AttentionOptions& o) {
  KeyRange range{0, n_keys};
  if (o.causal) range.end = std::clamp<int64_t>(position + 1, 0, n_keys);
  if (o.window > 0) range.begin = std::max<int64_t>(0, position - o.window + 1);
  if (o.block > 0) range.begin = std::max<int64_t>(0, (position / o.block - 1) * o.block);
  return range;
}

Tensor attention_mask(int64_t n_queries, int64_t n_keys, const AttentionOptions& options,
                      Device device) {
  const AttentionOptions o = completed(options);
  if (!o.causal && o.window == 0) return {};
  Tensor mask = ones({n_queries, n_keys}, {.dtype = boolean});
  bool* at = mask.data<bool>();
  for (int64_t i = 0; i < n_queries; ++i) {
    const KeyRange range = visible_keys(i + n_keys - n_queries, n_keys, o);
    for (int64_t j = range.begin; j < range.end; ++j) at[i * n_keys + j] = false;
  }
  return mask.to(device);
}

Tensor relative_rows(const RelativeTable& table, int64_t first, int64_t count) {
  const Tensor& rows = table.rows;
  const int64_t have = rows.size(1), begin = table.zero_row + first, end = begin + count;
  const int64_t before = std::clamp<int64_t>(-begin, 0, count);
  const int64_t after = std::clamp<int64_t>(end - have, 0, count - before);
  Tensor middle = rows.slice(1, std::max<int64_t>(begin, 0), std::max<int64_t>(end, 0));
  if (before == 0 && after == 0) return middle;
  auto outside = [&](int64_t row, int64_t n) {
    Shape shape = rows.shape();
    shape[1] = n;
    if (table.beyond != Beyond::clip) return zeros(shape, options_of(rows));
    return rows.slice(1, row, row + 1).expand(shape);
  };
  return cat({outside(0, before), middle, outside(have - 1, after)}, 1);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options) {
  const AttentionOptions o = completed(std::move(options));
  check_arguments(q, k, v, o);
  if (widens(q)) return attention(q.to(f32), k.to(f32), v.to(f32), widened(o)).to(bf16);
  const bool can_fuse = fused_attention_covers(q, o);
  check(o.form != AttentionForm::fused || can_fuse, op,
        "no fused form for these options (a value table, a dense bias, or CUDA tensors); use "
        "AttentionForm::composed");
  if (o.form == AttentionForm::composed || !can_fuse) return composed(q, k, v, o);
  return fused_attention(q, k, v, o);
}

Tensor attention_scores(const Tensor& q, const Tensor& k, AttentionOptions options) {
  AttentionOptions o = completed(std::move(options));
  o.values = {};
  check_arguments(q, k, k, o);
  if (widens(q)) return composed_scores(q.to(f32), k.to(f32), widened(o)).to(bf16);
  return composed_scores(q, k, o);
}

Tensor attention_weights(const Tensor& q, const Tensor& k, AttentionOptions options) {
  if (widens(q) && q.dtype() == k.dtype())
    return attention_weights(q.to(f32), k.to(f32), widened(std::move(options))).to(bf16);
  return softmax(attention_scores(q, k, std::move(options)), -1);
}

}  // namespace stretto
