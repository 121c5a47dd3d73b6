// Fused attention on the CPU, forward and backward.
//
// As in FlashAttention, scores are computed in tiles and never stored. For each batch entry and
// head, queries are processed in blocks of up to 64 rows. A block sees a range of keys, or several
// (ops/attention/block_mask.h), so its scores are one strip [rows, keys] that stays in the cache:
//
//     S  = scale · Q Kᵀ                                   one matrix product
//     P  = scale · Qₚ Rᵀ over the rows + keys − 1 relative positions that occur in the strip
//     S[i, j] += P[i, j − i + rows − 1]                   skew: each row is read at an offset
//     S += biases, softmax, dropout, O = S V
//     O += S · value table, with each row of S written at its offset
//
// Qₚ are the rows of q or relative_query, and R is the table relative_keys. K, V and the tables are
// packed once per head (core/gemm/packed.h), because they are operands for all strips.
//
// Only the columns of P that have a row in the table are computed. Out of range of a clipped
// table all keys share the product with the outermost row, and their weights are added up
// before that product.
//
// The backward pass recomputes the strip from q, k and two saved scalars per row: softmax
// subtracted the first and multiplied by the second (RowWeights). One scalar, the lse, would not be
// exact enough for large scores. Nothing of size M × N is therefore stored outside the strip.
//
// Order of sums: the gradients of k and v of one (batch entry, key head) are computed by one
// thread, which adds query blocks in order. Gradients of tables are summed per (batch entry, head)
// and added in order at the end. The gradient of a dense bias has the size of the bias; batch
// entries and heads that share it are processed one after the other. Results do not depend on the
// number of threads.
//
// Layout: inputs may have any strides if the last dimension is contiguous. Outputs are stored as
// [B, M, H, D] and returned as [B, H, M, D] views, so that merging heads needs no copy. Gradients
// have the same layout, except those of contiguous inputs.
#include <limits>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "ops/attention/attention_implementations.h"
#include "ops/attention/attention_strips.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto {
namespace {

using namespace strips;

constexpr const char* op = "attention";

// ---------------------------------------------------------------------------- forward

struct Result {
  AttentionOperands x;  // with short tables
  Tensor out;
  Tensor rescaling;  // RowWeights of each query
};

Result forward(const AttentionOperands& inputs) {
  const DType type = inputs.q.dtype();
  const AttentionOperands x = with_short_tables(inputs, compute_type(type));
  const AttentionProblem p(x);
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, type);
  const Tensor rescaling =
      empty({p.batch, p.heads, p.m, 2}, {.dtype = compute_type(type), .device = cpu});
  dispatch_floating(type, op, [&]<class S>() {
    auto* softmax = reinterpret_cast<RowWeights<compute_t<S>>*>(rescaling.raw_data());
    parallel_for(p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
      AttentionWorker<S> work(p);
      const HeadRows<S> o(out);
      for (int64_t at = begin; at < end; ++at) {
        const int64_t b = at / p.heads, h = at % p.heads;
        each_strip(p, b, h, [&](const Strip& s) {
          work.scores(s, false);
          work.weigh(s, softmax + at * p.m + s.i0);
          work.weigh_values(s, o.rows());
        });
        o.store(b, h);
      }
    });
  });
  return {x, out, rescaling};
}

// ---------------------------------------------------------------------------- backward

// `into` contains the gradients of tables separately for each batch entry and head.
template <class S>
void backward(const AttentionProblem& p, const Tensor& rescaling, const Tensor& grad,
              const Tensor& of_sums, const AttentionOperands& into) {
  using T = compute_t<S>;
  const T* const sums = of_sums.defined() ? of_sums.data<T>() : nullptr;
  const auto g = heads_of<S>(grad);
  // If there is no relative_query, the gradient of q is the sum of both terms.
  const AttentionOptions& to = into.options;
  const bool own = to.relative_query.defined();
  const TableGradients<T> tables{heads_of<T>(to.relative_keys.rows),
                                 heads_of<T>(to.relative_values.rows)};
  const ScoreTerms<T> terms(p, to);
  T* const sinks = to.sinks.defined() ? to.sinks.data<T>() : nullptr;
  const auto* softmax = reinterpret_cast<const RowWeights<T>*>(rescaling.raw_data());
  // Batch entries and key heads whose gradients share a bias form a chain, processed by one thread.
  const auto apart = [&](int d, int64_t n) {
    return to.bias.defined() && to.bias.size(d) == 1 ? std::min<int64_t>(n, 1) : n;
  };
  const int64_t batches = apart(0, p.batch), chains = apart(1, p.groups);
  parallel_for(batches * chains, 1, [&](int64_t begin, int64_t end) {
    AttentionWorker<S> work(p);
    const HeadRows<S> dq(into.q), dk(into.k), dv(into.v), dposition(to.relative_query);
    const auto key_head = [&](int64_t b, int64_t kh) {
      dk.clear(b, kh);
      dv.clear(b, kh);
      for (int64_t h = kh * p.per_group(); h < (kh + 1) * p.per_group(); ++h) {
        each_strip(p, b, h, [&](const Strip& s) {
          const int64_t unit = b * p.heads + h, row = unit * p.m + s.i0;
          work.scores(s, true);
          work.differentiate(s, softmax + row, g, sums ? sums + row : nullptr,
                             sinks ? sinks + unit : nullptr);
          work.add_gradients(s, g, dq.rows(), dk.rows(), dv.rows());
          work.add_table_gradients(s, g, T(own ? 0 : 1), own ? dposition.rows() : dq.rows(),
                                   tables);
          work.add_term_gradients(s, terms);
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

Tensors gradients(const AttentionOperands& x, const Tensor& rescaling, const Tensor& grad,
                  bool of_bias, const Tensor& of_sums = {}) {
  const AttentionProblem p(x);
  const TensorOptions options{.dtype = compute_type(x.q.dtype()), .device = cpu};
  AttentionOperands g{.q = heads_like(x.q), .k = heads_like(x.k), .v = heads_like(x.v)};
  AttentionOptions& to = g.options;
  if (x.options.relative_query.defined()) to.relative_query = heads_like(x.options.relative_query);
  const auto per_head = [&](const RelativeTable& table) {
    if (!table.defined()) return Tensor();
    Shape sizes = table.rows.shape();
    sizes[0] = p.heads;
    sizes.insert(0, p.batch);
    return zeros(sizes, options);
  };
  to.relative_keys.rows = per_head(x.options.relative_keys);
  to.relative_values.rows = per_head(x.options.relative_values);
  clear_term_gradients(p, of_bias, options, to);
  if (x.options.sinks.defined()) to.sinks = zeros({p.batch, p.heads}, options);
  const Tensor g_out = rows_contiguous(grad);
  dispatch_floating(x.q.dtype(), op,
                    [&]<class S>() { backward<S>(p, rescaling, g_out, of_sums, g); });
  return reduced_gradients(g, x);
}

}  // namespace

bool fused_attention_takes(DType type) { return !is_narrow(type) || has_bf16_products(); }

Tensor fused_attention(const AttentionOperands& inputs) {
  const auto [x, out, rescaling] = forward(inputs);
  const SavedAttention saved(x);
  // Gradients: with O = P V and dS = P · (g Vᵀ − rowsum(g · O)): dq = scale · dS K, dk = scale ·
  // dSᵀ Q, dv = Pᵀ g; with dS and P sheared to relative positions dp = scale · dS R, dR = scale ·
  // dSᵀ p, dV = Pᵀ g, db = Σ dS.
  return record("attention", x.tensors(), out, [saved, rescaling = rescaling](Backward& b) {
    if (grad_enabled()) return saved.composed_gradients(b);
    const AttentionOperands y = saved();
    return gradients(y, rescaling, b.grad(), b.needs(y.index_of(y.options.bias)));
  });
}

Tensors fused_attention_with_lse(const AttentionOperands& inputs) {
  const auto [x, out, rescaling] = forward(inputs);
  Tensor lse;
  {
    const NoGrad guard;
    const Tensor shift = rescaling.select(3, 0), scale = rescaling.select(3, 1);
    lse = masked_fill(shift - log(scale), eq(scale, 0), -std::numeric_limits<double>::infinity());
  }
  // Gradients: those of attention, with dS = P · (g Vᵀ − rowsum(g · O) + dlse).
  return record("attention_with_lse", x.tensors(), {out, lse},
                [saved = SavedAttention(x), rescaling = rescaling](Backward& b) {
                  check(!grad_enabled(), "attention_with_lse",
                        "has no gradient of its gradient; use attention(), without sinks of "
                        "queries or with Implementation::composed");
                  const AttentionOperands y = saved();
                  return gradients(y, rescaling, b.grad(0), b.needs(y.index_of(y.options.bias)),
                                   b.grad(1).contiguous());
                });
}

}  // namespace stretto
