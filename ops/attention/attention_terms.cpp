#include "ops/attention/attention_terms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/attention/heads.h"
#include "ops/attention/position_error.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

constexpr const char* op = "attention";

void check_table(const char* what, const RelativeTable& table, int64_t heads, int64_t last,
                 const AttentionOperands& x) {
  if (!table.defined()) return;
  const Tensor& rows = table.rows;
  const bool vector = last >= 0;
  check(rows.dim() == (vector ? 3 : 2) && (rows.size(0) == heads || rows.size(0) == 1) &&
            (!vector || rows.size(2) == last),
        op, what, " table ", rows, "; must be [", heads, " or 1, R",
        vector ? str(", ", last) : std::string(), "]");
  check(table.zero_row >= 0 && table.zero_row < rows.size(1), op, what, " table has ", rows.size(1),
        " rows, but zero_row is ", table.zero_row, "; set it to the row of relative position 0");
  if (table.out_of_range != OutOfRange::error) return;
  const auto [past, future] = x.range();
  const int64_t last_row = rows.size(1) - 1 - table.zero_row;
  if (table.zero_row >= past && last_row >= future) return;
  throw PositionError(str("[", op, "] ", what, " table reaches from ", -table.zero_row, " to ",
                          last_row, ", but relative positions from ", -past, " to ", future,
                          " are needed; make the table longer, or set `out_of_range` to zero or "
                          "clip"));
}

void check_mask(const AttentionMask& mask, const Tensor& q, const Tensor& k) {
  const int64_t batch = q.size(0), heads = q.size(1), m = q.size(2), n = k.size(2);
  check(mask.window >= 0 && mask.block >= 0 && mask.window_after >= 0, op, "window ", mask.window,
        ", window_after ", mask.window_after, ", block ", mask.block, "; must not be negative");
  check(mask.window == 0 || mask.block == 0, op, "window and block are both set; choose one");
  for (const char* other : {"window_after", "prefix_lengths", "global_tokens"})
    check(mask.block == 0 || setting_besides(mask, {"causal", "block", other}) ==
                                 setting_besides(mask, {"causal", "block"}),
          op, "block and ", other, " are both set; choose one");
  check_same_device(op,
                    {&q, &mask.segments, &mask.prefix_lengths, &mask.global_tokens, &mask.hidden});
  const auto check_tensor = [](const char* name, const Tensor& x, bool is_index,
                               const Shape& shape) {
    const bool type =
        x.defined() && (is_index ? x.dtype() == i64 || x.dtype() == i32 : is_mask(x.dtype()));
    check(!x.defined() || (type && x.shape() == shape), op, name, " ", x, "; must be ",
          is_index ? "i64 or i32 " : "bool or u8 ", shape);
  };
  check_tensor("segments", mask.segments, true, {batch, n});
  check_tensor("prefix_lengths", mask.prefix_lengths, true, {batch});
  check_tensor("global_tokens", mask.global_tokens, false, {batch, n});
  check((!mask.segments.defined() && !mask.global_tokens.defined()) || m <= n, op, m,
        " queries and ", n, " keys with segments or global_tokens; accepted: M ≤ N");
  check(!mask.prefix_lengths.defined() || mask.causal, op,
        "prefix_lengths without causal, which they change; set causal");
  check(!mask.global_tokens.defined() || mask.window > 0 || mask.window_after > 0, op,
        "global_tokens without window or window_after, which they change");
  if (!mask.hidden.defined()) return;
  const Shape all{batch, heads, m, n};
  check(is_mask(mask.hidden.dtype()) && broadcast_shapes(op, mask.hidden.shape(), all) == all, op,
        "hidden ", mask.hidden, "; must be bool or u8 and broadcast to ", all);
}

Tensor in_dtype(const Tensor& x, DType type) {
  return type == compute_type(x.dtype()) ? widened(x) : x.to(type);
}

}  // namespace

void check_attention(const AttentionOperands& inputs) {
  const Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const AttentionOptions& o = inputs.options;
  check_heads(op, q, k, v, o.mask.key_padding);
  check_same_device(op, {&q, &o.relative_query, &o.relative_keys.rows, &o.relative_values.rows,
                         &o.relative_bias.rows, &o.bias, &o.sinks});
  const int64_t batch = q.size(0), heads = q.size(1), m = q.size(2), n = k.size(2);
  check_mask(o.mask, q, k);
  check(o.soft_cap >= 0 && std::isfinite(o.soft_cap), op, "soft_cap ", o.soft_cap,
        "; must be 0 (none) or more");
  check(o.dropout >= 0 && o.dropout <= 1, op, "dropout ", o.dropout, "; accepted: 0 to 1");
  auto check_dtype = [&q](const char* what, const Tensor& x) {
    check(!x.defined() || x.dtype() == q.dtype(), op, what, x, " for q ", q, "; dtypes must agree");
  };
  check_dtype("relative_query ", o.relative_query);
  check_dtype("key table ", o.relative_keys.rows);
  check_dtype("value table ", o.relative_values.rows);
  check_dtype("bias table ", o.relative_bias.rows);
  check_dtype("bias ", o.bias);
  const Tensor& p = o.relative_query;
  check(!p.defined() || (p.dim() == 4 && p.shape() == Shape{batch, heads, m, p.size(3)}), op,
        "relative_query ", p, " for q ", q, "; must be [", batch, ", ", heads, ", ", m, ", P]");
  check(!o.relative_query.defined() || o.relative_keys.defined(), op,
        "relative_query is set without relative_keys, whose rows it multiplies");
  check_dtype("sinks ", o.sinks);
  check(!o.sinks.defined() || o.sinks.shape() == Shape{heads} ||
            o.sinks.shape() == Shape{batch, heads, m},
        op, "sinks ", o.sinks, "; must be [", heads, "], one score per head, or [", batch, ", ",
        heads, ", ", m, "]");
  check_table("key", o.relative_keys, heads, (p.defined() ? p : q).size(3), inputs);
  check_table("value", o.relative_values, heads, v.size(3), inputs);
  check_table("bias", o.relative_bias, heads, -1, inputs);
  if (o.bias.defined())
    check(broadcast_shapes(op, o.bias.shape(), {batch, heads, m, n}) == Shape{batch, heads, m, n},
          op, "bias ", o.bias, "; must broadcast to [", batch, ", ", heads, ", ", m, ", ", n, "]");
}

AttentionOperands converted(AttentionOperands x, DType type) {
  x.for_each_tensor([&](Tensor& member) {
    if (member.defined()) member = in_dtype(member, type);
  });
  return x;
}

AttentionOperands with_short_tables(AttentionOperands x, DType type) {
  const RelativeRange all = x.range();
  for (RelativeTable* table : {&x.options.relative_keys, &x.options.relative_values}) {
    if (!table->defined()) continue;
    const int64_t begin = std::max<int64_t>(0, table->zero_row + all.first());
    const int64_t end = std::min(table->rows.size(1), table->zero_row + all.future + 1);
    const bool all_rows = begin == 0 && end == table->rows.size(1);
    const Tensor rows = all_rows ? table->rows : table->rows.slice(1, begin, std::max(begin, end));
    table->rows = in_dtype(rows, type);
    table->zero_row -= begin;
  }
  if (Tensor& sinks = x.options.sinks; sinks.defined()) sinks = sinks.to(type);
  if (RelativeTable& b = x.options.relative_bias; b.defined())
    b = {relative_rows({b.rows.to(type), b.zero_row, b.out_of_range}, all.first(), all.count()),
         all.past};
  return x;
}

Tensor skewed_rows(const RelativeTable& table, int64_t m, int64_t n, bool causal) {
  return relative_rows(table, -(n - 1), causal ? n : n + m - 1);
}

Tensor with_score_terms(Tensor scores, const AttentionOptions& o) {
  const int64_t m = scores.size(2), n = scores.size(3);
  if (o.relative_bias.defined() && n > 0) {
    const Tensor b = skewed_rows(o.relative_bias, m, n, o.mask.is_causal());
    scores = scores + skew(b.unsqueeze(1).expand({b.size(0), m, b.size(1)}), n);
  }
  if (o.bias.defined()) scores = scores + o.bias;
  return scores;
}

Tensors reduced_gradients(const AttentionOperands& gradients, const AttentionOperands& inputs) {
  Tensors all = gradients.tensors();
  const Tensors like = inputs.tensors();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) continue;
    const Shape& shape = like[i].shape();
    if (all[i].numel() != like[i].numel())
      all[i] = sum_to(all[i], shape);
    else if (all[i].shape() != shape)
      all[i] = all[i].reshape(shape);
    all[i] = all[i].to(like[i].dtype());
  }
  return all;
}

double score_scale(const Tensor& q, const AttentionOptions& o) {
  return o.scale.value_or(1 / std::sqrt(double(std::max<int64_t>(q.size(3), 1))));
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
    if (table.out_of_range != OutOfRange::clip) return zeros(shape, options_of(rows));
    return rows.slice(1, row, row + 1).expand(shape);
  };
  return cat({outside(0, before), middle, outside(have - 1, after)}, 1);
}

}  // namespace stretto
