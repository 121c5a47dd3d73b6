// Fused stochastic positional encoding, forward and backward.
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
#include "ops/spe/spe_fused.h"

#include <array>

#include "core/gemm/gemm.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/rows.h"

namespace stretto {
namespace {

constexpr int64_t at_once = 4;  // codes in one sum

/// Rows [positions, R] of some dimensions.
template <class T>
using CodeTile = std::array<const T*, SpeSource::most_dims>;

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
STRETTO_CLONES void code_products(const T* g, const CodeTile<T>& codes, int64_t rows, int64_t batch,
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

// What a thread works with: makers of rows for dimensions d0 … d0 + n − 1 of head h.
template <class T>
struct Worker {
  Worker(const SpeSource& source, const Tensors& inputs, const Tensors& gradients) : s(source) {
    for (int64_t c = 0; c < s.dims; ++c)
      makers.push_back(std::get<SpeRowsPtr<T>>(s.rows(inputs, gradients)));
  }
  void begin(int64_t head, int64_t dim) { h = head, d0 = dim, n = std::min(s.dims, s.d - dim); }
  void prepare(SpeSpan span) {
    for (int64_t c = 0; c < n; ++c) makers[size_t(c)]->prepare(h, d0 + c, span);
  }
  CodeTile<T> rows(Side side, SpeSpan span) {
    CodeTile<T> tile{};
    for (int64_t c = 0; c < n; ++c) tile[size_t(c)] = makers[size_t(c)]->rows(side, span);
    return tile;
  }
  // The gate's, of these dimensions; null without one.
  const T* factors(const SpeCall& call) const {
    return call.factors.defined() ? call.factors.data<T>() + h * s.d + d0 : nullptr;
  }

  const SpeSource& s;
  std::vector<SpeRowsPtr<T>> makers;
  int64_t h = 0, d0 = 0, n = 0;
};

// y ← x E, or 0 without a gate.
template <class T>
void begin_results(const SpeSource& s, const SpeCall& call, const SpeOperand& o, int64_t h,
                   SpeSpan span) {
  const int64_t r = s.realizations;
  const auto x = heads_of<T>(o.x), y = heads_of<T>(o.y);
  for (int64_t b = 0; b < o.x.size(0); ++b) {
    T* const to = y.at(b, h, span.p0 - o.at);
    if (call.rows.defined())
      gemm(span.size(), r, s.d, T(1), {x.at(b, h, span.p0 - o.at), x.row},
           {call.rows.data<T>() + h * s.d * r, r}, T(0), to, y.row);
    else
      for (int64_t i = 0; i < span.size(); ++i) std::fill_n(to + i * y.row, r, T(0));
  }
}

// y += Σ_c a_c x_c C_c.
template <class T>
void add_results(Worker<T>& w, const T* factors, const SpeOperand& o, Side side, SpeSpan span) {
  const auto x = heads_of<T>(o.x), y = heads_of<T>(o.y);
  const CodeTile<T> codes = w.rows(side, span);
  for (int64_t i = 0; i < span.size(); ++i)
    for (int64_t b = 0; b < o.x.size(0); ++b) {
      const T* from = x.at(b, w.h, span.p0 - o.at + i) + w.d0;
      T scaled[SpeSource::most_dims];
      for (int64_t c = 0; c < w.n; ++c) scaled[c] = factors ? from[c] * factors[c] : from[c];
      for (int64_t c = 0; c < w.n; c += at_once)
        add_codes(scaled + c, codes.data() + c, i, std::min(at_once, w.n - c),
                  y.at(b, w.h, span.p0 - o.at + i), w.s.realizations);
    }
}

template <class T>
void forward(const SpeSource& s, const Tensors& inputs, const SpeCall& call) {
  if (call.sides[0].x.size(0) == 0) return;
  const SpeSpan all = call.span();
  const int64_t segments = (all.size() + s.segment - 1) / s.segment;
  parallel_for(s.heads * segments, 1, [&](int64_t begin, int64_t end) {
    Worker<T> worker(s, inputs, {});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / segments, p0 = all.p0 + unit % segments * s.segment;
      const SpeSpan here = SpeSpan{p0, p0 + s.segment} & all;
      for (const SpeOperand& o : call.sides)
        if (const SpeSpan span = here & o.span(); o.y.defined() && span.size() > 0)
          begin_results<T>(s, call, o, h, span);
      for (int64_t d0 = 0; d0 < s.d; d0 += s.dims) {
        worker.begin(h, d0);
        worker.prepare(here);
        for (const Side side : both_sides) {
          const SpeOperand& o = call.sides[int(side)];
          if (const SpeSpan span = here & o.span(); o.y.defined() && span.size() > 0)
            add_results(worker, worker.factors(call), o, side, span);
        }
      }
    }
  });
}

// dx ← g Eᵀ, dE.
template <class T>
void gate_backward(const SpeSource& s, const SpeCall& call) {
  const int64_t r = s.realizations;
  parallel_for(s.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h)
      for (const SpeOperand& o : call.sides) {
        const auto x = heads_of<T>(o.x), g = heads_of<T>(o.y), dx = heads_of<T>(o.dx);
        const int64_t n = o.x.size(2), at = h * s.d * r;
        for (int64_t b = 0; n > 0 && b < o.x.size(0); ++b) {
          if (dx)
            gemm(n, s.d, r, T(1), {g.at(b, h), g.row}, {call.rows.data<T>() + at, r, true}, T(0),
                 dx.at(b, h), dx.row);
          if (call.d_rows.defined())
            gemm(s.d, r, n, T(1), {x.at(b, h), x.row, true}, {g.at(b, h), g.row}, T(1),
                 call.d_rows.data<T>() + at, r);
        }
      }
  });
}

// An operand in a span of positions, for the dimensions of a worker, side by side: x
// [positions, B, dims] and the gradient g [positions, B, R] of its result.
template <class T>
struct Gathered {
  Gathered(const SpeSource& s, int64_t most_batch)
      : x_memory(empty({s.segment, most_batch, s.dims}, {.dtype = dtype_of<T>(), .device = cpu})),
        t_memory(empty_like(x_memory)),
        g_memory(empty({s.segment, most_batch, s.realizations},
                       {.dtype = dtype_of<T>(), .device = cpu})) {}

  void load(const Worker<T>& w, const SpeOperand& o, SpeSpan span) {
    const int64_t r = w.s.realizations;
    batch = o.x.size(0), rows = span.size(), first = span.p0 - o.at;
    const auto from = heads_of<T>(o.x), grad = heads_of<T>(o.y);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(from.at(b, w.h, first + i) + w.d0, w.n, x + (i * batch + b) * w.n);
        std::copy_n(grad.at(b, w.h, first + i), r, g + (i * batch + b) * r);
      }
  }

  // dx ← a t, added where a gate has written to it, and da += Σ x t.
  void operand_gradients(const Worker<T>& w, const CodeTile<T>& codes, const SpeCall& call,
                         const SpeOperand& o) {
    code_products(g, codes, rows, batch, w.n, w.s.realizations, t);
    for (int64_t c = 0; call.d_factors.defined() && c < w.n; ++c) {
      double sum = 0;
      for (int64_t i = c; i < rows * batch * w.n; i += w.n) sum += double(x[i] * t[i]);
      call.d_factors.data<double>()[w.h * w.s.d + w.d0 + c] += sum;
    }
    const T* const factors = w.factors(call);
    const auto dx = heads_of<T>(o.dx);
    for (int64_t b = 0; dx && b < batch; ++b)
      for (int64_t i = 0; i < rows; ++i) {
        T* to = dx.at(b, w.h, first + i) + w.d0;
        const T* from = t + (i * batch + b) * w.n;
        for (int64_t c = 0; c < w.n; ++c) to[c] = factors ? to[c] + factors[c] * from[c] : from[c];
      }
  }

  const Tensor x_memory, t_memory, g_memory;
  T* const x = x_memory.data<T>();
  T* const t = t_memory.data<T>();
  T* const g = g_memory.data<T>();
  int64_t batch = 0, rows = 0, first = 0;
};

template <class T>
void backward(const SpeSource& s, const Tensors& inputs, const std::vector<SpeCall>& calls,
              const Tensors& gradients) {
  SpeSpan all;
  int64_t batch = 0;
  for (const SpeCall& call : calls) {
    all = all | call.span();
    batch = std::max(batch, call.sides[0].x.size(0));
    if (call.rows.defined()) gate_backward<T>(s, call);
  }
  if (all.size() == 0) return;
  const int64_t chunks = (s.d + s.dims - 1) / s.dims, r = s.realizations;
  const int64_t n_sums = gradients.empty() ? 0 : s.dims;
  parallel_for(s.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    Worker<T> worker(s, inputs, gradients);
    Gathered<T> rows(s, batch);
    const Tensor memory = empty({n_sums, s.segment, r}, {.dtype = dtype_of<T>(), .device = cpu});
    T* const sums = memory.data<T>();  // dC
    for (int64_t unit = begin; unit < end; ++unit) {
      worker.begin(unit / chunks, unit % chunks * s.dims);
      const int64_t n = worker.n;
      for (int64_t p0 = all.p0; p0 < all.p1; p0 += s.segment) {
        const SpeSpan here = SpeSpan{p0, p0 + s.segment} & all;
        const int64_t size = here.size() * r;
        worker.prepare(here);
        for (const Side side : both_sides) {
          if (n_sums > 0) std::fill_n(sums, n * size, T(0));
          for (const SpeCall& call : calls) {
            const SpeOperand& o = call.sides[int(side)];
            const SpeSpan span = here & o.span();
            if (span.size() == 0) continue;
            rows.load(worker, o, span);
            if (o.dx.defined() || call.d_factors.defined())
              rows.operand_gradients(worker, worker.rows(side, span), call, o);
            const T* factors = worker.factors(call);
            for (int64_t c = 0; n_sums > 0 && c < n; ++c)
              add_weighted(factors ? factors[c] : T(1), rows.x + c, n, rows.g, rows.rows,
                           rows.batch, r, sums + c * size + (span.p0 - here.p0) * r);
          }
          for (int64_t c = 0; n_sums > 0 && c < n; ++c)
            worker.makers[size_t(c)]->add_gradient(side, here, sums + c * size);
        }
      }
      for (int64_t c = 0; n_sums > 0 && c < n; ++c) worker.makers[size_t(c)]->finish_gradient();
    }
  });
}

}  // namespace

void spe_forward(const SpeSource& s, const Tensors& inputs, const SpeCall& call) {
  inputs[0].dtype() == f64 ? forward<double>(s, inputs, call) : forward<float>(s, inputs, call);
}

void spe_backward(const SpeSource& s, const Tensors& inputs, const std::vector<SpeCall>& calls,
                  const Tensors& gradients) {
  inputs[0].dtype() == f64 ? backward<double>(s, inputs, calls, gradients)
                           : backward<float>(s, inputs, calls, gradients);
}

Tensors plain_tensors(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(x.detach().contiguous());
  return all;
}

Tensors zeros_of(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(zeros_like(x));
  return all;
}

}  // namespace stretto
