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
#include "ops/spe_streamed.h"

#include <algorithm>
#include <array>

#include "core/blas.h"
#include "ops/create.h"
#include "ops/heads.h"
#include "ops/loops.h"
#include "ops/rows.h"

namespace stretto {
namespace {

constexpr const char* op = "spe";

// ---------------------------------------------------------------------------- rows

constexpr int64_t at_once = 4;     // codes in one sum
constexpr int64_t most_dims = 16;  // of which a thread makes rows side by side

template <class T>
using Codes = std::array<const T*, most_dims>;

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

// t[l, b, c] = Σ_r g[l, b, r] codes[c][l, r].
template <class T>
STRETTO_CLONES void code_products(const T* g, const Codes<T>& codes, int64_t rows, int64_t batch,
                                  int64_t dims, int64_t r, T* t) {
  for (int64_t l = 0; l < rows; ++l)
    for (int64_t b = 0; b < batch; ++b) {
      const T* from = g + (l * batch + b) * r;
      for (int64_t c = 0; c < dims; ++c) {
        const T* code = codes[size_t(c)] + l * r;
        t[(l * batch + b) * dims + c] =
            rows::sum<T>(r, [&](int64_t i) { return from[i] * code[i]; });
      }
    }
}

// to[l, r] += Σ_b a x[l, b] g[l, b, r], the x `step` apart.
template <class T>
STRETTO_CLONES void add_weighted(T a, const T* x, int64_t step, const T* g, int64_t rows,
                                 int64_t batch, int64_t r, T* to) {
  for (int64_t l = 0; l < rows; ++l, to += r) {
    int64_t b = 0;
    for (; b + 4 <= batch; b += 4, x += 4 * step, g += 4 * r) {
      const T x0 = a * x[0], x1 = a * x[step], x2 = a * x[2 * step], x3 = a * x[3 * step];
#pragma GCC ivdep
      for (int64_t i = 0; i < r; ++i)
        to[i] += (x0 * g[i] + x1 * g[r + i]) + (x2 * g[2 * r + i] + x3 * g[3 * r + i]);
    }
    for (; b < batch; ++b, x += step, g += r) {
      const T x0 = a * x[0];
#pragma GCC ivdep
      for (int64_t i = 0; i < r; ++i) to[i] += x0 * g[i];
    }
  }
}

// ---------------------------------------------------------------------------- a call

// Rows of a kept code.
template <class T>
class KeptRows : public SpeRows<T> {
 public:
  explicit KeptRows(const Tensor* codes) : codes_(codes) {}
  void prepare(int64_t h, int64_t d, int64_t, int64_t) override {
    offset_ = (h * codes_[0].size(1) + d) * codes_[0].size(2);
  }
  const T* rows(SpeSide side, int64_t p0, int64_t) override {
    return codes_[int(side)].data<T>() + (offset_ + p0) * codes_[0].size(3);
  }
  void add_gradient(SpeSide, int64_t, int64_t, const T*) override {}
  void finish_gradient() override {}

 private:
  const Tensor* codes_;
  int64_t offset_ = 0;
};

// What rows are made from, besides the parameters.
struct Maker {
  std::shared_ptr<const SpeSource> source;
  std::shared_ptr<KeptCodes> kept;

  int64_t segment() const { return kept ? 32 : source->segment(); }
  int64_t dims() const { return kept ? most_dims : source->dims(); }
  template <class T>
  std::unique_ptr<SpeRows<T>> rows(const Tensors& inputs, const Tensors& gradients) const {
    if (kept) return std::make_unique<KeptRows<T>>(kept->codes);
    return source->rows<T>(inputs, gradients);
  }
};

struct Span {
  int64_t p0, p1;
  int64_t size() const { return std::max<int64_t>(0, p1 - p0); }
  Span operator&(Span o) const { return {std::max(p0, o.p0), std::min(p1, o.p1)}; }
};
Span span_of(const SpeOperand& o) { return {o.at, o.at + o.x.size(2)}; }
Span around(Span a, Span b) {
  if (a.size() == 0) return b;
  if (b.size() == 0) return a;
  return {std::min(a.p0, b.p0), std::max(a.p1, b.p1)};
}

// Operands with contiguous rows, off the tape.
struct Call {
  SpeOperand sides[2];
  SpeGateTerms gate;
  Tensors inputs;

  Span span() const { return around(span_of(sides[0]), span_of(sides[1])); }
};

// Of one thread: a maker of rows for each of the dimensions that it takes side by side.
template <class T>
struct Makers {
  std::vector<std::unique_ptr<SpeRows<T>>> at;
  Makers(const Maker& maker, const Tensors& inputs, const Tensors& gradients) {
    for (int64_t i = 0; i < maker.dims(); ++i) at.push_back(maker.rows<T>(inputs, gradients));
  }
  void prepare(int64_t h, int64_t d0, int64_t n, Span s) {
    for (int64_t c = 0; c < n; ++c) at[size_t(c)]->prepare(h, d0 + c, s.p0, s.p1);
  }
  Codes<T> rows(SpeSide side, int64_t n, Span s) {
    Codes<T> codes{};
    for (int64_t c = 0; c < n; ++c) codes[size_t(c)] = at[size_t(c)]->rows(side, s.p0, s.p1);
    return codes;
  }
};

template <class T>
const T* factors_of(const Tensor& factors, int64_t h) {
  return factors.defined() ? factors.data<T>() + h * factors.size(1) : nullptr;
}

template <class T>
void forward(const Maker& maker, const Call& call, const Tensors& out) {
  const SpeSource& s = *maker.source;
  const Span all = call.span();
  const int64_t segment = maker.segment(), segments = (all.size() + segment - 1) / segment;
  const int64_t batch = call.sides[0].x.size(0), r = s.realizations;
  if (batch == 0) return;
  parallel_for(s.heads * segments, 1, [&](int64_t begin, int64_t end) {
    Makers<T> makers(maker, call.inputs, {});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / segments, p0 = all.p0 + unit % segments * segment;
      const Span here = Span{p0, p0 + segment} & all;
      const T* factors = factors_of<T>(call.gate.factors, h);
      for (const SpeSide side : spe_sides) {
        const SpeOperand& o = call.sides[int(side)];
        const Span span = here & span_of(o);
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
          const Span span = here & span_of(o);
          if (span.size() == 0) continue;
          const auto x = heads_of<T>(o.x), y = heads_of<T>(out[size_t(side)]);
          const Codes<T> codes = makers.rows(side, n, span);
          for (int64_t i = 0; i < span.size(); ++i)
            for (int64_t b = 0; b < batch; ++b) {
              const T* from = x.at(b, h, span.p0 - o.at + i) + d0;
              T scaled[most_dims];
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

// One side in a segment of positions, for one head and some dimensions, side by side:
// x [positions, B, dims] and g [positions, B, R].
template <class T>
class Gathered {
 public:
  Gathered(int64_t segment, int64_t batch, int64_t r)
      : r_(r),
        x_(empty({segment, batch, most_dims}, {.dtype = dtype_of<T>()})),
        t_(empty({segment, batch, most_dims}, {.dtype = dtype_of<T>()})),
        g_(empty({segment, batch, r}, {.dtype = dtype_of<T>()})) {}

  void load(const SpeOperand& o, const Tensor& grad, int64_t h, int64_t d0, int64_t n, Span span) {
    batch_ = o.x.size(0);
    rows_ = span.size();
    dims_ = n;
    const auto x = heads_of<T>(o.x), g = heads_of<T>(grad);
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t i = 0; i < rows_; ++i) {
        const int64_t l = span.p0 - o.at + i, at = i * batch_ + b;
        std::copy_n(x.at(b, h, l) + d0, n, x_.template data<T>() + at * n);
        std::copy_n(g.at(b, h, l), r_, g_.template data<T>() + at * r_);
      }
  }

  // t [positions, B, dims] = g Cᵀ.
  const T* products(const Codes<T>& codes) {
    code_products(g_.template data<T>(), codes, rows_, batch_, dims_, r_, t_.template data<T>());
    return t_.template data<T>();
  }
  // Σ_{b,l} x t of a dimension.
  double sum(int64_t c) const {
    const T *x = x_.template data<T>(), *t = t_.template data<T>();
    double total = 0;
    for (int64_t i = 0; i < rows_ * batch_; ++i)
      total += double(x[i * dims_ + c] * t[i * dims_ + c]);
    return total;
  }
  // dC of a dimension, [positions, R], is added to `to`.
  void add_code_gradient(int64_t c, T factor, T* to) const {
    add_weighted(factor, x_.template data<T>() + c, dims_, g_.template data<T>(), rows_, batch_, r_,
                 to);
  }

 private:
  const int64_t r_;
  int64_t batch_ = 0, rows_ = 0, dims_ = 0;
  Tensor x_, t_, g_;
};

template <class T>
void backward(const Maker& maker, const Call& call, const Tensors& grads, const Gradients& into) {
  const SpeSource& s = *maker.source;
  const Span all = call.span();
  const int64_t segment = maker.segment(), chunks = (s.d + maker.dims() - 1) / maker.dims();
  const int64_t batch = call.sides[0].x.size(0), r = s.realizations;
  const bool gated = call.gate.rows.defined();
  if (gated) gate_backward<T>(s, call, grads, into);
  const bool through_codes = into.x[0].defined() || into.x[1].defined() || into.factors.defined();
  parallel_for(s.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    Makers<T> makers(maker, call.inputs, into.inputs);
    Gathered<T> rows(segment, batch, r);
    const Tensor buffer = empty({segment, r}, {.dtype = dtype_of<T>()});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / chunks, d0 = unit % chunks * maker.dims();
      const int64_t n = std::min(maker.dims(), s.d - d0);
      const T* factors = factors_of<T>(call.gate.factors, h);
      double factor_sums[most_dims] = {};
      for (int64_t p0 = all.p0; p0 < all.p1; p0 += segment) {
        const Span here = Span{p0, p0 + segment} & all;
        makers.prepare(h, d0, n, here);
        for (const SpeSide side : spe_sides) {
          const SpeOperand& o = call.sides[int(side)];
          const Span span = here & span_of(o);
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

Tensors plain(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(x.detach().contiguous());
  return all;
}

Tensors zeros_of(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(zeros_like(x));
  return all;
}

Tensor plain(const Tensor& x) { return x.defined() ? x.detach().contiguous() : x; }

}  // namespace

SpePair streamed_spe(const SpeOperand& q, const SpeOperand& k, const SpeCode& code,
                     const SpeGateTerms& gate) {
  const Maker maker{SpeAccess::shared_source(code), SpeAccess::kept(code)};
  const SpeSource& s = *maker.source;
  const DType type = q.x.dtype();
  const Tensors sources = maker.kept ? Tensors{SpeAccess::handle(code)} : s.inputs(type);
  Tensors inputs = {q.x, k.x, gate.factors, gate.rows};
  inputs.insert(inputs.end(), sources.begin(), sources.end());

  auto call_of = [q_at = q.at, k_at = k.at](const Tensors& in) {
    return Call{{{rows_contiguous(in[0]), q_at}, {rows_contiguous(in[1]), k_at}},
                {plain(in[2]), plain(in[3])},
                plain(Tensors(in.begin() + 4, in.end()))};
  };
  const int64_t batch = q.x.size(0);
  auto like = [=, heads = s.heads](const Tensor& x, int64_t width) {
    return heads_inside(batch, heads, x.size(2), width, type, false);
  };
  Tensors out = {like(q.x, s.realizations), like(k.x, s.realizations)};
  type == f64 ? forward<double>(maker, call_of(inputs), out)
              : forward<float>(maker, call_of(inputs), out);

  std::vector<Saved> saved(inputs.begin(), inputs.end());
  out = record(op, inputs, out, [=](Backward& b) {
    once_differentiable(op);
    Tensors again;
    for (const Saved& x : saved) again.push_back(x());
    const Call call = call_of(again);
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
  return {out[0], out[1]};
}

namespace {

template <class T>
void make_codes(const SpeSource& s, const Tensors& inputs, const KeptCodes& kept) {
  const int64_t segment = s.segment(), r = s.realizations;
  parallel_for(s.heads * s.d, 1, [&](int64_t begin, int64_t end) {
    const auto rows = s.rows<T>(inputs, {});
    for (int64_t i = begin; i < end; ++i)
      for (int64_t p0 = 0; p0 < kept.length; p0 += segment) {
        const int64_t p1 = std::min(kept.length, p0 + segment);
        rows->prepare(i / s.d, i % s.d, p0, p1);
        for (const SpeSide side : spe_sides)
          std::copy_n(rows->rows(side, p0, p1), (p1 - p0) * r,
                      kept.codes[int(side)].data<T>() + (i * kept.length + p0) * r);
      }
  });
}

// Sums what the calls left behind into gradients of the inputs.
template <class T>
void kept_backward(const SpeSource& s, const Tensors& inputs, const Tensors& gradients,
                   const std::vector<KeptCodes::Pending>& pending) {
  Span all{0, 0};
  for (const KeptCodes::Pending& call : pending) all = around(all, span_of(call.operand));
  const Maker maker{std::shared_ptr<const SpeSource>(std::shared_ptr<void>(), &s), nullptr};
  const int64_t segment = s.segment(), chunks = (s.d + maker.dims() - 1) / maker.dims();
  const int64_t r = s.realizations;
  int64_t batch = 0;
  for (const KeptCodes::Pending& call : pending) batch = std::max(batch, call.operand.x.size(0));
  parallel_for(s.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    Makers<T> makers(maker, inputs, gradients);
    Gathered<T> rows(segment, batch, r);
    const Tensor buffer = empty({maker.dims(), segment, r}, {.dtype = dtype_of<T>()});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / chunks, d0 = unit % chunks * maker.dims();
      const int64_t n = std::min(maker.dims(), s.d - d0);
      for (int64_t p0 = all.p0; p0 < all.p1; p0 += segment) {
        const Span here = Span{p0, p0 + segment} & all;
        makers.prepare(h, d0, n, here);
        for (const SpeSide side : spe_sides) {
          T* const sums = buffer.data<T>();
          std::fill_n(sums, n * here.size() * r, T(0));
          for (const KeptCodes::Pending& call : pending) {
            const Span span = here & span_of(call.operand);
            if (call.side != side || span.size() == 0) continue;
            rows.load(call.operand, call.grad, h, d0, n, span);
            const T* factors = factors_of<T>(call.factors, h);
            for (int64_t c = 0; c < n; ++c)
              rows.add_code_gradient(c, factors ? factors[d0 + c] : T(1),
                                     sums + (c * here.size() + span.p0 - here.p0) * r);
          }
          for (int64_t c = 0; c < n; ++c)
            makers.at[size_t(c)]->add_gradient(side, here.p0, here.p1, sums + c * here.size() * r);
        }
      }
      for (int64_t c = 0; c < n; ++c) makers.at[size_t(c)]->finish_gradient();
    }
  });
}

}  // namespace

SpeCode keep_on_cpu(const SpeCode& code, int64_t length, DType dtype) {
  const auto source = SpeAccess::shared_source(code);
  const Tensors inputs = source->inputs(dtype);
  auto kept = std::make_shared<KeptCodes>();
  kept->length = length;
  for (Tensor& codes : kept->codes)
    codes = empty({source->heads, source->d, length, source->realizations}, {.dtype = dtype});
  dtype == f64 ? make_codes<double>(*source, plain(inputs), *kept)
               : make_codes<float>(*source, plain(inputs), *kept);
  std::vector<Saved> saved(inputs.begin(), inputs.end());
  const Tensor handle = record("spe_kept", inputs, zeros({1}, {.dtype = dtype}), [=](Backward& b) {
    once_differentiable("spe_kept");
    // One from each call of this pass; anything older is of a pass that did not end.
    const auto calls = std::min(2 * size_t(b.grad().item()), kept->pending.size());
    const std::vector<KeptCodes::Pending> pending(kept->pending.end() - std::ptrdiff_t(calls),
                                                  kept->pending.end());
    kept->pending.clear();
    Tensors again;
    for (const Saved& x : saved) again.push_back(x());
    again = plain(again);
    const Tensors gradients = zeros_of(again);
    dtype == f64 ? kept_backward<double>(*source, again, gradients, pending)
                 : kept_backward<float>(*source, again, gradients, pending);
    return gradients;
  });
  return SpeAccess::make_kept(code, kept, handle);
}

}  // namespace stretto
