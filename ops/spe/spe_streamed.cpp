// Streamed stochastic positional encoding on the CPU, forward and backward; kept codes.
//
// With C_d the code of a dimension, a tile of rows that is made, used for the whole batch and
// forgotten, and E [D, R] the gate's rows that all positions share:
//
//     x̂[l, :] = Σ_d a_d x[l, d] C_d[l, :] + (x E)[l, :]
//     t[l, d] = Σ_r g[l, r] C_d[l, r]         dx = a t + g Eᵀ       da_d = Σ_{b,l} x t
//     dC_d[l, :] = Σ_b a_d x[l, d] g[l, :]    dE = Σ_b xᵀ g
//
// Forward a thread takes a segment of positions of one head and goes through its dimensions;
// backward it takes some dimensions and goes through the positions, so that every accumulator has
// one owner and results do not depend on the number of threads. Rows of a batch lie far apart in
// memory; backward gathers those of a segment side by side first.
//
// Multiplications for each of the H·L·D·R numbers of a code, B the batch, queries and keys alike:
//                      forward            backward
//     applied          B                  2 B
//     sine, K sines    2 K                2 K + 4 K
//     conv, P taps     P + 31             2 (P + 31)
//     kept             0                  0, and once those of sine or conv
// Gradients of the parameters of a kept code take B more for each call that used it.
#include "ops/spe/spe_streamed.h"

#include <algorithm>

#include "core/blas.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/spe/spe_tiles.h"

namespace stretto {
namespace {

constexpr const char* op = "spe";
constexpr int64_t at_once = 4;  // codes in one sum

// to[r] += Σ_c x[c] codes[c][row, r], n ≤ 4.
template <class T>
STRETTO_CLONES void add_codes(const T* x, const T* const* codes, int64_t row, int64_t n, T* to,
                              int64_t r) {
  if (n == at_once) {
    const T *c0 = codes[0] + row * r, *c1 = codes[1] + row * r, *c2 = codes[2] + row * r,
            *c3 = codes[3] + row * r;
    const T x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
#pragma GCC ivdep
    for (int64_t i = 0; i < r; ++i) to[i] += (x0 * c0[i] + x1 * c1[i]) + (x2 * c2[i] + x3 * c3[i]);
    return;
  }
  for (int64_t c = 0; c < n; ++c) {
    const T* from = codes[c] + row * r;
#pragma GCC ivdep
    for (int64_t i = 0; i < r; ++i) to[i] += x[c] * from[i];
  }
}

// Operands with contiguous rows, off the tape.
struct Call {
  SpeOperand sides[2];
  SpeGateTerms gate;
  Tensors inputs;

  SpeSpan span() const { return around(span_of(sides[0]), span_of(sides[1])); }
};

template <class T>
void forward(const SpeMaker& maker, const Call& call, const Tensors& out) {
  const SpeSource& s = *maker.source;
  const SpeSpan all = call.span();
  const int64_t segment = maker.segment(), segments = (all.size() + segment - 1) / segment;
  const int64_t batch = call.sides[0].x.size(0), r = s.realizations;
  if (batch == 0) return;
  parallel_for(s.heads * segments, 1, [&](int64_t begin, int64_t end) {
    SpeMakers<T> makers(maker, call.inputs, {});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / segments, p0 = all.p0 + unit % segments * segment;
      const SpeSpan here = SpeSpan{p0, p0 + segment} & all;
      const T* factors = spe_factors<T>(call.gate.factors, h);
      for (const SpeSide side : spe_sides) {
        const SpeOperand& o = call.sides[int(side)];
        const SpeSpan span = here & span_of(o);
        const auto x = heads_of<T>(o.x), y = heads_of<T>(out[size_t(side)]);
        for (int64_t b = 0; span.size() > 0 && b < batch; ++b) {
          T* to = y.at(b, h, span.p0 - o.at);
          if (call.gate.rows.defined())
            gemm(span.size(), r, s.d, T(1), {x.at(b, h, span.p0 - o.at), x.row},
                 {call.gate.rows.data<T>() + h * s.d * r, r}, T(0), to, y.row);
          else
            for (int64_t i = 0; i < span.size(); ++i) std::fill_n(to + i * y.row, r, T(0));
        }
      }
      for (int64_t d0 = 0; d0 < s.d; d0 += maker.dims()) {
        const int64_t n = std::min(maker.dims(), s.d - d0);
        makers.prepare(h, d0, n, here);
        for (const SpeSide side : spe_sides) {
          const SpeOperand& o = call.sides[int(side)];
          const SpeSpan span = here & span_of(o);
          if (span.size() == 0) continue;
          const auto x = heads_of<T>(o.x), y = heads_of<T>(out[size_t(side)]);
          const SpeCodeRows<T> codes = makers.rows(side, n, span);
          for (int64_t i = 0; i < span.size(); ++i)
            for (int64_t b = 0; b < batch; ++b) {
              const T* from = x.at(b, h, span.p0 - o.at + i) + d0;
              T scaled[most_spe_dims];
              for (int64_t c = 0; c < n; ++c)
                scaled[c] = factors ? from[c] * factors[d0 + c] : from[c];
              for (int64_t c = 0; c < n; c += at_once)
                add_codes(scaled + c, codes.data() + c, i, std::min(at_once, n - c),
                          y.at(b, h, span.p0 - o.at + i), r);
            }
        }
      }
    }
  });
}

// What backward is to compute; undefined what it is not.
struct Gradients {
  Tensor x[2];     // of q and k
  Tensor factors;  // [H, D]
  Tensor rows;     // [H, D, R]
  Tensors inputs;  // zeroed; empty for a kept code
};

// dx ← g Eᵀ, dE.
template <class T>
void gate_backward(const SpeSource& s, const Call& call, const Tensors& grads,
                   const Gradients& into) {
  const int64_t batch = call.sides[0].x.size(0), r = s.realizations;
  parallel_for(s.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h)
      for (const SpeSide side : spe_sides) {
        const SpeOperand& o = call.sides[int(side)];
        const auto x = heads_of<T>(o.x), g = heads_of<T>(grads[size_t(side)]),
                   dx = heads_of<T>(into.x[int(side)]);
        const int64_t n = o.x.size(2), at = h * s.d * r;
        for (int64_t b = 0; n > 0 && b < batch; ++b) {
          if (dx)
            gemm(n, s.d, r, T(1), {g.at(b, h), g.row}, {call.gate.rows.data<T>() + at, r, true},
                 T(0), dx.at(b, h), dx.row);
          if (into.rows.defined())
            gemm(s.d, r, n, T(1), {x.at(b, h), x.row, true}, {g.at(b, h), g.row}, T(1),
                 into.rows.data<T>() + at, r);
        }
      }
  });
}

template <class T>
void backward(const SpeMaker& maker, const Call& call, const Tensors& grads,
              const Gradients& into) {
  const SpeSource& s = *maker.source;
  const SpeSpan all = call.span();
  const int64_t segment = maker.segment(), chunks = (s.d + maker.dims() - 1) / maker.dims();
  const int64_t batch = call.sides[0].x.size(0), r = s.realizations;
  const bool gated = call.gate.rows.defined();
  if (gated) gate_backward<T>(s, call, grads, into);
  const bool through_codes = into.x[0].defined() || into.x[1].defined() || into.factors.defined();
  parallel_for(s.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    SpeMakers<T> makers(maker, call.inputs, into.inputs);
    SpeGathered<T> rows(segment, batch, r);
    const Tensor buffer = empty({segment, r}, {.dtype = dtype_of<T>()});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / chunks, d0 = unit % chunks * maker.dims();
      const int64_t n = std::min(maker.dims(), s.d - d0);
      const T* factors = spe_factors<T>(call.gate.factors, h);
      double factor_sums[most_spe_dims] = {};
      for (int64_t p0 = all.p0; p0 < all.p1; p0 += segment) {
        const SpeSpan here = SpeSpan{p0, p0 + segment} & all;
        makers.prepare(h, d0, n, here);
        for (const SpeSide side : spe_sides) {
          const SpeOperand& o = call.sides[int(side)];
          const SpeSpan span = here & span_of(o);
          if (span.size() == 0) continue;
          rows.load(o, grads[size_t(side)], h, d0, n, span);
          if (through_codes) {
            const T* t = rows.products(makers.rows(side, n, span));
            if (into.factors.defined())
              for (int64_t c = 0; c < n; ++c) factor_sums[c] += rows.sum(c);
            const auto dx = heads_of<T>(into.x[int(side)]);
            for (int64_t b = 0; dx && b < batch; ++b)
              for (int64_t i = 0; i < span.size(); ++i) {
                T* to = dx.at(b, h, span.p0 - o.at + i) + d0;
                const T* from = t + (i * batch + b) * n;
                for (int64_t c = 0; c < n; ++c) {
                  const T own = factors ? factors[d0 + c] * from[c] : from[c];
                  to[c] = gated ? to[c] + own : own;
                }
              }
          }
          for (int64_t c = 0; !into.inputs.empty() && c < n; ++c) {
            T* const to = buffer.data<T>();
            std::fill_n(to, span.size() * r, T(0));
            rows.add_code_gradient(c, factors ? factors[d0 + c] : T(1), to);
            makers.at[size_t(c)]->add_gradient(side, span.p0, span.p1, to);
          }
        }
      }
      for (int64_t c = 0; c < n; ++c) {
        if (into.factors.defined()) into.factors.data<T>()[h * s.d + d0 + c] = T(factor_sums[c]);
        if (!into.inputs.empty()) makers.at[size_t(c)]->finish_gradient();
      }
    }
  });
}

Tensor plain(const Tensor& x) { return x.defined() ? x.detach().contiguous() : x; }

}  // namespace

SpePair streamed_spe(const SpeOperand& q, const SpeOperand& k, const SpeCode& code,
                     const SpeGateTerms& gate) {
  const SpeMaker maker{SpeAccess::shared_source(code), SpeAccess::kept(code)};
  const SpeSource& s = *maker.source;
  const DType type = q.x.dtype();
  const Tensors sources = maker.kept ? Tensors{SpeAccess::handle(code)} : s.inputs(type);
  Tensors inputs = {q.x, k.x, gate.factors, gate.rows};
  inputs.insert(inputs.end(), sources.begin(), sources.end());

  auto call_of = [q_at = q.at, k_at = k.at](const Tensors& in) {
    return Call{{{rows_contiguous(in[0]), q_at}, {rows_contiguous(in[1]), k_at}},
                {plain(in[2]), plain(in[3])},
                plain_tensors(Tensors(in.begin() + 4, in.end()))};
  };
  const int64_t batch = q.x.size(0);
  auto like = [=, heads = s.heads](const Tensor& x, int64_t width) {
    return heads_inside(batch, heads, x.size(2), width, type, false);
  };
  Tensors out = {like(q.x, s.realizations), like(k.x, s.realizations)};
  type == f64 ? forward<double>(maker, call_of(inputs), out)
              : forward<float>(maker, call_of(inputs), out);

  std::vector<Saved> saved(inputs.begin(), inputs.end());
  auto saved_call = [=] {
    once_differentiable(op);
    Tensors again;
    for (const Saved& x : saved) again.push_back(x());
    return call_of(again);
  };
  // Gradients: dx = a t + g Eᵀ, da = Σ x t, dE = Σ xᵀ g, dC = Σ a x g, t = Σ_r g C.
  out = record(op, inputs, out, [=](Backward& b) {
    const Call call = saved_call();
    const Tensors grads = {rows_contiguous(b.grad(0)), rows_contiguous(b.grad(1))};
    Gradients into;
    for (const SpeSide side : spe_sides)
      if (b.needs(size_t(side)))
        into.x[int(side)] = like(call.sides[int(side)].x, call.sides[int(side)].x.size(3));
    if (b.needs(2)) into.factors = zeros_like(call.gate.factors);
    if (b.needs(3)) into.rows = zeros_like(call.gate.rows);
    bool parameters = false;
    for (size_t i = 4; i < saved.size(); ++i) parameters = parameters || b.needs(i);
    if (parameters && !maker.kept) into.inputs = zeros_of(call.inputs);
    type == f64 ? backward<double>(maker, call, grads, into)
                : backward<float>(maker, call, grads, into);
    Tensors result = {into.x[0], into.x[1], into.factors, into.rows};
    result.resize(saved.size());
    if (!into.inputs.empty()) std::copy(into.inputs.begin(), into.inputs.end(), result.begin() + 4);
    if (maker.kept && parameters) {
      for (const SpeSide side : spe_sides)
        maker.kept->pending.push_back(
            {call.sides[int(side)], side, call.gate.factors, grads[size_t(side)]});
      result[4] = ones_like(call.inputs[0]);
    }
    return result;
  });
  // What follows keeps no q̂ and k̂, which are as large as q and k.
  for (const SpeSide side : spe_sides)
    make_again(out[size_t(side)], [=, r = s.realizations] {
      Call call = saved_call();
      const NoGrad guard;
      Tensor& other = call.sides[1 - int(side)].x;
      other = other.slice(2, 0, 0);
      const Tensors made = {like(call.sides[0].x, r), like(call.sides[1].x, r)};
      type == f64 ? forward<double>(maker, call, made) : forward<float>(maker, call, made);
      return made[size_t(side)];
    });
  return {out[0], out[1]};
}

}  // namespace stretto
