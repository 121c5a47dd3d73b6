// Fused attention on the CPU, forward and backward.
//
// For each batch entry and head, queries are taken in blocks of up to 64 rows. Such a block sees a
// contiguous range of keys, so its scores are one strip [rows, keys] that stays in the cache:
//
//     S  = scale · Q Kᵀ                                   one matrix product
//     P  = scale · Qₚ Rᵀ over the rows + keys − 1 relative positions that the strip touches
//     S[i, j] += P[i, j − i + rows − 1]                   the skew is a row read at an offset
//     S += biases, softmax, dropout, O = S V
//     O += S, each row written at its offset, times the rows of the value table
//
// K, V and the tables are packed once per head (core/gemm/packed.h), as all strips meet them.
//
// Of P only columns with rows of their own in the table are computed: beyond a clipped table's ends
// all keys share the outermost product, and their weights are added up before they meet it.
//
// Backward computes the strip again from q, k and what softmax subtracted from each row and
// multiplied it with (not log Σ e^S: one number has no room for both where scores are large), so
// nothing of size M × N exists outside the strip. Sums: the gradients of k and v of one (batch, key
// head) have one owner that adds query blocks in order; those of the relative rows are kept per
// (batch, head) and added in order at the end. The gradient of a dense bias is as large as the
// bias: batch entries and heads that share one take turns. Results do not depend on the number of
// threads.
//
// Layout: inputs may have any strides with the last dimension contiguous; outputs are stored [B, M,
// H, D] and returned as [B, H, M, D] views, so that joining heads is no copy, and gradients too,
// but for contiguous inputs.
#include "ops/attention/attention_fused.h"

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "ops/attention/attention_composed.h"
#include "ops/attention/attention_strips.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto {
namespace {

using namespace strips;

Problem problem_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  Problem p{.batch = q.size(0),
            .heads = q.size(1),
            .groups = k.size(1),
            .m = q.size(2),
            .n = k.size(2),
            .d = q.size(3),
            .dv = v.size(3),
            .scale = score_scale(q, o),
            .mask = o.mask,
            .dropout = o.dropout,
            .dropout_key = o.dropout_key};
  if (o.mask.key_padding.defined()) p.mask.key_padding = o.mask.key_padding.to(u8).contiguous();
  p.drop_below = uint32_t(std::ceil(o.dropout * 16777216.0));
  p.keep_scale = o.dropout >= 1 ? 0 : 1 / (1 - o.dropout);
  const int64_t past = furthest_past(p.n, o.mask);
  p.first = -past;
  // Relative position 0 even without queries: each table has a row for it.
  p.width = past + (o.mask.is_causal() ? 1 : std::max<int64_t>(p.m, 1));
  return p;
}

DType compute_type(const Tensor& q) { return q.dtype() == bf16 ? f32 : q.dtype(); }

// The rows of a table that relative positions which occur meet, and those at its ends.
RelativeTable within_reach(const Problem& p, RelativeTable table, DType type) {
  if (!table.defined()) return table;
  const int64_t begin = std::max<int64_t>(0, table.zero_row + p.first);
  const int64_t end = std::min(table.rows.size(1), table.zero_row + p.first + p.width);
  table.rows = table.rows.to(type).slice(1, begin, std::max(begin, end));
  table.zero_row -= begin;
  return table;
}

// Gradients of tables add up in f32. Sets the problem's edges.
Operands operands_of(Problem& p, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& o) {
  const DType type = compute_type(q);
  const RelativeTable keys = within_reach(p, o.keys, type),
                      values = within_reach(p, o.values, type);
  const auto edges = [](const RelativeTable& table) {
    return TableEdges{table.zero_row, table.beyond == Beyond::clip};
  };
  p.keys = edges(keys);
  p.values = edges(values);
  RelativeTable lag_bias = o.lag_bias;
  if (lag_bias.defined()) {
    lag_bias.rows = lag_bias.rows.to(type);
    lag_bias.rows = relative_rows(lag_bias, p.first, p.width);
  }
  return {q, k, v, o.position_query, keys.rows, values.rows, lag_bias.rows, o.bias};
}

// The same call in its composed form.
Tensor composed(const Problem& p, const Operands& x) {
  const DType type = compute_type(x.q);
  const auto wide = [&](const Tensor& t) { return t.defined() ? t.to(type) : t; };
  const auto table = [](const Tensor& rows, const TableEdges& edges) {
    return RelativeTable{rows, edges.zero_row, edges.clip ? Beyond::clip : Beyond::zero};
  };
  return composed_attention(x.q.to(type), x.k.to(type), x.v.to(type),
                            {.mask = p.mask,
                             .scale = p.scale,
                             .position_query = wide(x.position),
                             .keys = table(x.rows, p.keys),
                             .values = table(x.value_rows, p.values),
                             .lag_bias = {x.lag_bias, -p.first},
                             .bias = wide(x.bias),
                             .dropout = p.dropout,
                             .dropout_key = p.dropout_key})
      .to(x.q.dtype());
}

// ---------------------------------------------------------------------------- forward

template <class S>
void forward(const Problem& p, const Operands& x, const Tensor& out, const Tensor& rescaling) {
  auto* softmax = reinterpret_cast<RowWeights<compute_t<S>>*>(rescaling.raw_data());
  parallel_for(p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Worker<S> work(p, x);
    const HeadRows<S> o(out);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / p.heads, h = at % p.heads;
      each_strip(p, b, h, [&](const Strip& s) {
        work.scores(s);
        work.weigh(s, softmax + at * p.m + s.i0);
        work.weigh_values(s, o.rows());
      });
      o.store(b, h);
    }
  });
}

// ---------------------------------------------------------------------------- backward

// `into`: the gradients of tables per batch entry and head.
template <class S>
void backward(const Problem& p, const Operands& x, const Tensor& rescaling, const Tensor& grad,
              const Tensor& of_sums, const Operands& into) {
  using T = compute_t<S>;
  const T* const sums = of_sums.defined() ? of_sums.data<T>() : nullptr;
  const auto g = heads_of<S>(grad);
  // Without a position query of its own, q's gradient has both parts.
  const bool own = into.position.defined();
  const TableGradients<T> tables{heads_of<T>(into.rows), heads_of<T>(into.value_rows),
                                 into.lag_bias.defined() ? into.lag_bias.data<T>() : nullptr,
                                 ScoreBias<T>(p, into.bias)};
  const auto* softmax = reinterpret_cast<const RowWeights<T>*>(rescaling.raw_data());
  // Each of `chains` goes through the batch entries and key heads that end in the same places.
  const auto apart = [&](int d, int64_t n) {
    return into.bias.defined() && into.bias.size(d) == 1 ? std::min<int64_t>(n, 1) : n;
  };
  const int64_t batches = apart(0, p.batch), chains = apart(1, p.groups);
  parallel_for(batches * chains, 1, [&](int64_t begin, int64_t end) {
    Worker<S> work(p, x);
    const HeadRows<S> dq(into.q), dk(into.k), dv(into.v), dposition(into.position);
    const auto key_head = [&](int64_t b, int64_t kh) {
      dk.clear(b, kh);
      dv.clear(b, kh);
      for (int64_t h = kh * p.per_group(); h < (kh + 1) * p.per_group(); ++h) {
        each_strip(p, b, h, [&](const Strip& s) {
          const int64_t row = (b * p.heads + h) * p.m + s.i0;
          work.scores(s);
          work.differentiate(s, softmax + row, g, sums ? sums + row : nullptr);
          work.add_gradients(s, g, dq.rows(), dk.rows(), dv.rows());
          work.add_table_gradients(s, g, T(own ? 0 : 1), own ? dposition.rows() : dq.rows(),
                                   tables);
        });
        dq.store(b, h);
        dposition.store(b, h);
      }
      dk.store(b, kh);
      dv.store(b, kh);
    };
    for (int64_t at = begin; at < end; ++at)
      for (int64_t b = at / chains; b < p.batch; b += batches)
        for (int64_t kh = at % chains; kh < p.groups; kh += chains) key_head(b, kh);
  });
}

template <class F>
void with_type(const Tensor& q, F f) {
  q.dtype() == f64 ? f(double()) : q.dtype() == f32 ? f(float()) : f(BFloat16());
}

// Zeros for the gradient of a bias, in four dimensions: per batch entry and head where that is
// little, else of the bias's own sizes.
Tensor bias_gradient(const Problem& p, const Tensor& bias, const TensorOptions& options) {
  Shape sizes = bias.shape();
  while (sizes.dim() < 4) sizes.insert(0, 1);
  if (sizes[2] == 1 || sizes[3] == 1) sizes[0] = p.batch, sizes[1] = p.heads;
  return zeros(sizes, options);
}

Tensors gradients(const Problem& p, const Operands& x, const Tensor& rescaling, const Tensor& grad,
                  bool of_bias, const Tensor& of_sums = {}) {
  const TensorOptions options{.dtype = compute_type(x.q), .device = cpu};
  Operands g{.q = heads_like(x.q), .k = heads_like(x.k), .v = heads_like(x.v)};
  if (x.position.defined()) g.position = heads_like(x.position);
  const auto per_head = [&](const Tensor& table) {
    if (!table.defined()) return Tensor();
    Shape sizes = table.shape();
    sizes[0] = p.heads;
    sizes.insert(0, p.batch);
    return zeros(sizes, options);
  };
  g.rows = per_head(x.rows);
  g.value_rows = per_head(x.value_rows);
  g.lag_bias = per_head(x.lag_bias);
  if (of_bias) g.bias = bias_gradient(p, x.bias, options);
  const Operands from = x.for_kernels();
  const Tensor g_out = rows_contiguous(grad);
  with_type(x.q, [&](auto t) { backward<decltype(t)>(p, from, rescaling, g_out, of_sums, g); });
  const auto total = [](const Tensor& all, const Tensor& like) {
    if (!all.defined()) return Tensor();
    return all.numel() == like.numel() ? all.reshape(like.shape()) : sum_to(all, like.shape());
  };
  g.rows = total(g.rows, x.rows);
  g.value_rows = total(g.value_rows, x.value_rows);
  g.lag_bias = total(g.lag_bias, x.lag_bias);
  g.bias = total(g.bias, x.bias);
  if (of_bias) g.bias = g.bias.to(x.q.dtype());
  return g.list();
}

struct Computed {
  Problem p;
  Operands x;
  Tensor out, rescaling;  // RowWeights of each query
};

Computed computed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  Problem p = problem_of(q, k, v, o);
  const Operands x = operands_of(p, q, k, v, o), in = x.for_kernels();
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, q.dtype(), false);
  const Tensor rescaling =
      empty({p.batch, p.heads, p.m, 2}, {.dtype = compute_type(q), .device = cpu});
  with_type(q, [&](auto t) { forward<decltype(t)>(p, in, out, rescaling); });
  return {p, x, out, rescaling};
}

}  // namespace

bool fused_attention_takes(DType type) { return type != bf16 || has_bf16_products(); }

Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o) {
  const auto [p, x, out, rescaling] = computed(q, k, v, o);
  const Tensors inputs = x.list();
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: with O = P V and dS = P · (g Vᵀ − rowsum(g · O)): dq = scale · dS K, dk = scale ·
  // dSᵀ Q, dv = Pᵀ g; with dS and P sheared to relative positions dp = scale · dS R, dR = scale ·
  // dSᵀ p, dV = Pᵀ g, db = Σ dS.
  return record("attention", inputs, out, [p = p, saved, rescaling = rescaling](Backward& b) {
    const Tensors again = values_of(saved);
    if (grad_enabled())
      return composed_gradient(
          b, [&p](const Tensors& inner) { return composed(p, Operands::of(inner)); }, again);
    return gradients(p, Operands::of(again), rescaling, b.grad(), b.needs(Operands::bias_at));
  });
}

Tensors fused_attention_and_sums(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& o) {
  const auto [p, x, out, rescaling] = computed(q, k, v, o);
  Tensor log_sum;
  {
    const NoGrad guard;
    const Tensor shift = rescaling.select(3, 0), scale = rescaling.select(3, 1);
    log_sum =
        masked_fill(shift - log(scale), eq(scale, 0), -std::numeric_limits<double>::infinity());
  }
  const Tensors inputs = x.list();
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: those of attention, where dS = P · (g Vᵀ − rowsum(g · O) + dlog_sum).
  return record("attention_and_sums", inputs, {out, log_sum},
                [p = p, saved, rescaling = rescaling](Backward& b) {
                  check(!grad_enabled(), "attention_and_sums",
                        "has no gradient of its gradient; use attention()");
                  return gradients(p, Operands::of(values_of(saved)), rescaling, b.grad(0),
                                   b.needs(Operands::bias_at), b.grad(1).contiguous());
                });
}

}  // namespace stretto
