// Linear attention with decay, composed of differentiable ops.
//
// All chunks of C positions are computed together, except for the state S [F, Dv] that passes from
// one to the next. Within a chunk, with D_ij = Σ_{j < t ≤ i} log α_t,
//
//     P = lower triangle of (q_i·k_j) e^{D_ij}          u_i = v_i without the delta rule
//     y_i = q_i e^{D_i} S + Σ_j P_ij u_j                D_i: from the beginning of the chunk
//     S' = e^D S + Σ_j e^{D_j} k_j u_jᵀ                 D_j: to its end, D: of the whole chunk
//
// With the delta rule, the state S_t = α_t S_{t−1} + k_t u_tᵀ has the values
//
//     u_i = β_i (v_i − k_i e^{D_i} S − Σ_{j < i} M_ij u_j),   M = (k_i·k_j) e^{D_ij}
//
// (the UT transform of Yang et al. 2024), a triangular system. It is linear in S: u = u⁰ − w S.
//
// D_ij is a sum of logarithms and never a difference of sums, so that −∞ and large sums are exact.
#include <algorithm>
#include <tuple>

#include "ops/attention/gated_linear_attention_implementations.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Solves (I + L) x = r for a strictly lower triangle L [.., C, C] and r [.., C, D].
Tensor solve_unit_lower(const Tensor& l, const Tensor& r) {
  const int64_t c = r.size(-2), half = c / 2;
  if (c == 1) return r;
  const Tensor first =
      solve_unit_lower(l.slice(-2, 0, half).slice(-1, 0, half), r.slice(-2, 0, half));
  const Tensor from_first = matmul(l.slice(-2, half).slice(-1, 0, half), first);
  const Tensor second =
      solve_unit_lower(l.slice(-2, half).slice(-1, half), r.slice(-2, half) - from_first);
  return cat({first, second}, -2);
}

// The decays within chunks, for g [.., C] or, with one decay per feature, [.., C, F].
struct ChunkDecays {
  bool by_feature;
  Tensor between;  // e^{D_ij} for j ≤ i, else 0: [.., C, C], or [.., F, C, C]
  Tensor start;    // e^{D_i} [.., C, 1], or [.., C, F]
  Tensor end;      // e^{D_j} [.., C, 1], or [.., C, F]

  ChunkDecays(const Tensor& g, bool by_feature_) : by_feature(by_feature_) {
    const int64_t c = g.size(by_feature ? -2 : -1);
    const Tensor rows = (by_feature ? g.transpose(-1, -2) : g).unsqueeze(-1);
    Shape square = rows.shape();
    square[square.dim() - 1] = c;
    between = tril(exp(cumsum(tril(rows.expand(square), -1), -2)));
    const Tensor last = between.select(-2, c - 1);
    start = exp(cumsum(g, by_feature ? -2 : -1));
    end = by_feature ? last.transpose(-1, -2) : last.unsqueeze(-1);
    if (!by_feature) start = start.unsqueeze(-1);
  }

  // (x_i·k_j) e^{D_ij} for j ≤ i.
  Tensor products(const Tensor& x, const Tensor& k) const {
    if (!by_feature) return matmul(x, k.transpose(-1, -2)) * between;
    return sum(x.transpose(-1, -2).unsqueeze(-1) * k.transpose(-1, -2).unsqueeze(-2) * between,
               {-3});
  }
};

}  // namespace

GatedLinearResult composed_gated_linear_attention(const GatedLinearOperands& in) {
  const int64_t b = in.before.size(0), h = in.before.size(1), dv = in.v.size(3), n = in.k.size(2);
  const bool by_feature = in.log_decay.dim() == 4;
  const int64_t most = by_feature ? std::min<int64_t>(in.chunk, 16) : in.chunk;  // C² F products
  const int64_t c = std::clamp<int64_t>(n, 1, most), count = std::max<int64_t>(1, (n + c - 1) / c);
  // [B, G, N, ..] → [B, H, chunks, C, ..], with zeros at the end.
  const auto chunks = [&](const Tensor& x) {
    Shape all{b, x.size(1), h / x.size(1), count, c}, joined{b, h, count, c};
    Tensor y = pad(x, 2, 0, count * c - n)
                   .reshape(x.dim() == 4 ? Shape{b, x.size(1), 1, count, c, x.size(3)}
                                         : Shape{b, x.size(1), 1, count, c});
    if (x.dim() == 4) all.push_back(x.size(3)), joined.push_back(x.size(3));
    return y.expand(all).reshape(joined);
  };
  const Tensor q = chunks(in.q) * in.scale, k = chunks(in.k), v = chunks(in.v);
  const ChunkDecays decays(chunks(in.log_decay), by_feature);

  Tensor values = v, of_state;  // u⁰ and w
  if (in.beta.defined()) {
    const Tensor beta = chunks(in.beta).unsqueeze(-1);
    const Tensor system = tril(decays.products(k, k), -1) * beta;
    const Tensor solved = solve_unit_lower(system, cat({v, k * decays.start}, -1) * beta);
    values = solved.slice(-1, 0, dv);
    of_state = solved.slice(-1, dv);
  }

  const Tensor to_end = (k * decays.end).transpose(-1, -2);
  const Tensor whole = decays.start.select(-2, c - 1).unsqueeze(-1);  // [.., 1 or F, 1]
  Tensor state = in.before;
  Tensors states, used;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = [i](const Tensor& x) { return x.select(2, i); };
    states.push_back(state);
    used.push_back(of_state.defined() ? at(values) - matmul(at(of_state), state) : at(values));
    state = at(whole) * state + matmul(at(to_end), used.back());
  }
  const Tensor out =
      matmul(q * decays.start, stack(states, 2)) + matmul(decays.products(q, k), stack(used, 2));
  return {out.reshape({b, h, count * c, dv}).slice(2, 0, n), state};
}

}  // namespace stretto
