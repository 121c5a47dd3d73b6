// Fused attention on the CPU, forward and backward.
//
// For each batch entry and head, queries are taken in blocks of up to 64 rows. Such a block sees a
// contiguous range of keys, so its scores are one strip [rows, keys] that stays in the cache:
//
//     S  = scale · Q Kᵀ                                   one matrix product
//     P  = scale · Qₚ Rᵀ over the rows + keys − 1 relative positions that the strip touches
//     S[i, j] += P[i, j − i + rows − 1]                   the skew is a row read at an offset
//     softmax, dropout, O = S V
//
// Backward computes the strip again from q, k and what softmax subtracted from each row and
// multiplied it with (not log Σ e^S: one number has no room for both where scores are large), so
// nothing of size M × N exists outside the strip. Sums: the gradients of k and v of one (batch, key
// head) have one owner that adds query blocks in order; those of the relative rows are kept per
// (batch, head) and added in order at the end. Results do not depend on the number of threads.
//
// Layout: inputs may have any strides with the last dimension contiguous; outputs and gradients
// are stored [B, M, H, D] and returned as [B, H, M, D] views, so that joining heads is no copy.
#include "ops/attention/attention_fused.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "ops/attention/attention_composed.h"
#include "ops/attention/attention_strips.h"
#include "ops/create.h"
#include "ops/reduce.h"

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
  p.width = past + (o.mask.is_causal() ? 1 : p.m);
  return p;
}

DType compute_type(const Tensor& q) { return q.dtype() == bf16 ? f32 : q.dtype(); }

// The table's policy is an op of its own, so the gradient of clipped rows adds up there, in f32.
Operands operands_of(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& o) {
  const auto rows_of = [&](RelativeTable table) {
    if (!table.defined()) return Tensor();
    table.rows = table.rows.to(compute_type(q));
    return relative_rows(table, p.first, p.width);
  };
  return {q,
          k,
          v,
          o.keys.defined() ? o.position_query : Tensor(),
          rows_of(o.keys),
          rows_of(o.lag_bias)};
}

// The same call in its composed form.
Tensor composed(const Problem& p, const Operands& x) {
  const DType type = compute_type(x.q);
  return composed_attention(
             x.q.to(type), x.k.to(type), x.v.to(type),
             {.mask = p.mask,
              .scale = p.scale,
              .position_query = x.position.defined() ? x.position.to(type) : Tensor(),
              .keys = {x.rows, -p.first},
              .lag_bias = {x.lag_bias, -p.first},
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

// `into`: the gradients of rows and lag_bias per batch entry and head.
template <class S>
void backward(const Problem& p, const Operands& x, const Tensor& rescaling, const Tensor& grad,
              const Operands& into) {
  using T = compute_t<S>;
  const auto g = heads_of<S>(grad);
  const auto drows = heads_of<T>(into.rows);
  // Without a position query of its own, q's gradient has both parts.
  const bool own = into.position.defined();
  T* dlag_bias = into.lag_bias.defined() ? into.lag_bias.data<T>() : nullptr;
  const auto* softmax = reinterpret_cast<const RowWeights<T>*>(rescaling.raw_data());
  parallel_for(p.batch * p.groups, 1, [&](int64_t begin, int64_t end) {
    Worker<S> work(p, x);
    const HeadRows<S> dq(into.q), dk(into.k), dv(into.v), dposition(into.position);
    for (int64_t group = begin; group < end; ++group) {
      dk.clear();
      dv.clear();
      for (int64_t at = group * p.per_group(); at < (group + 1) * p.per_group(); ++at) {
        const int64_t b = at / p.heads, h = at % p.heads;
        each_strip(p, b, h, [&](const Strip& s) {
          work.scores(s);
          work.differentiate(s, softmax + at * p.m + s.i0, g);
          work.add_gradients(s, g, dq.rows(), dk.rows(), dv.rows());
          if (drows || dlag_bias)
            work.add_table_gradients(s, T(own ? 0 : 1), own ? dposition.rows() : dq.rows(), drows,
                                     dlag_bias);
        });
        dq.store(b, h);
        dposition.store(b, h);
      }
      dk.store(group / p.groups, group % p.groups);
      dv.store(group / p.groups, group % p.groups);
    }
  });
}

template <class F>
void with_type(const Tensor& q, F f) {
  q.dtype() == f64 ? f(double()) : q.dtype() == f32 ? f(float()) : f(BFloat16());
}

Tensors gradients(const Problem& p, const Operands& x, const Tensor& rescaling,
                  const Tensor& grad) {
  const DType type = x.q.dtype();
  const TensorOptions options{.dtype = compute_type(x.q), .device = cpu};
  Operands g{.q = heads_inside(p.batch, p.heads, p.m, p.d, type, false),
             .k = heads_inside(p.batch, p.groups, p.n, p.d, type, true),
             .v = heads_inside(p.batch, p.groups, p.n, p.dv, type, true)};
  if (x.position.defined()) g.position = heads_inside(p.batch, p.heads, p.m, p.d, type, false);
  if (x.rows.defined()) g.rows = zeros({p.batch, p.heads, p.width, p.d}, options);
  if (x.lag_bias.defined()) g.lag_bias = zeros({p.batch, p.heads, p.width}, options);
  const Operands from = x.for_kernels();
  const Tensor g_out = rows_contiguous(grad);
  with_type(x.q, [&](auto t) { backward<decltype(t)>(p, from, rescaling, g_out, g); });
  const auto total = [](const Tensor& per_head, const Tensor& like) {
    if (!like.defined()) return Tensor();
    return like.size(0) == 1 ? sum(per_head, {0, 1}).unsqueeze(0) : sum(per_head, {0});
  };
  g.rows = total(g.rows, x.rows);
  g.lag_bias = total(g.lag_bias, x.lag_bias);
  return g.list();
}

}  // namespace

bool fused_attention_covers(const Tensor& q, const AttentionOptions& o) {
  return q.device().is_cpu() && !o.values.defined() && !o.bias.defined();
}
bool fused_attention_takes(DType type) { return type != bf16 || has_bf16_products(); }

Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o) {
  const Problem p = problem_of(q, k, v, o);
  const Operands x = operands_of(p, q, k, v, o), in = x.for_kernels();
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, q.dtype(), false);
  const Tensor rescaling =
      empty({p.batch, p.heads, p.m, 2}, {.dtype = compute_type(q), .device = cpu});
  with_type(q, [&](auto t) { forward<decltype(t)>(p, in, out, rescaling); });
  const Tensors inputs = x.list();
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: with O = P V and dS = P · (g Vᵀ − rowsum(g · O)): dq = scale · dS K, dk = scale ·
  // dSᵀ Q, dv = Pᵀ g; with dS sheared to relative positions dp = scale · dS R, dR = scale · dSᵀ p,
  // db = Σ dS.
  return record("attention", inputs, out, [p, saved, rescaling](Backward& b) {
    const Tensors again = values_of(saved);
    if (grad_enabled())
      return composed_gradient(
          b, [&p](const Tensors& inner) { return composed(p, Operands::of(inner)); }, again);
    return gradients(p, Operands::of(again), rescaling, b.grad());
  });
}

}  // namespace stretto
