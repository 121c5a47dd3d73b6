// Fused stochastic positional encoding, forward and backward.
//
// x are queries or keys, x̂ the results, and g the gradients of x̂. C_d is the code of a dimension,
// computed in tiles of rows that are used for the whole batch and never stored. a_d and E [D, R]
// are the gate's factors and rows, the same for all positions:
//
//     x̂[l, :] = Σ_d a_d x[l, d] C_d[l, :] + (x E)[l, :]
//     t[l, d] = Σ_r g[l, r] C_d[l, r]         dx = a t + g Eᵀ       da_d = Σ_{b,l} x t
//     dC_d[l, :] = Σ_b a_d x[l, d] g[l, :]    dE = Σ_b xᵀ g
//
// Operands and results have dtype S; codes and sums have dtype T, which is f32 for bf16. Only
// results are rounded, once. In the forward pass a thread processes a segment of positions of one
// head, dimension by dimension; in the backward pass it processes some dimensions, position by
// position. Each accumulator therefore belongs to one thread, and results do not depend on the
// number of threads. Rows of different batch entries are far apart in memory; the backward pass
// first gathers the rows of a segment.
//
// Multiplications for each of the H·L·D·R elements of a code, for queries and for keys,
// with batch size B:
//                      forward            backward
//     applied          B                  2 B
//     sine, K sines    K                  K + 2 K
//     conv, P taps     P + 31             2 (P + 31)
//     cached           0                  0, and once the number for sine or conv
//
// "applied" is the multiplication of the operands by the code; the other lines are the computation
// of the code. Gradients of the parameters of a cached code need B more for each call of spe() that
// used the code.
#include "ops/spe/spe_fused.h"

#include <array>

#include "core/gemm/gemm.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/rows.h"
#include "ops/spe/spe_kernels.h"

namespace stretto {
namespace {

/// Rows [positions, R] of some dimensions.
template <class T>
using CodeTile = std::array<const T*, SpeSource::most_dims>;

// The state of one thread: row computations for dimensions d0 … d0 + n − 1 of head h.
template <class T>
struct SpeWorker {
  SpeWorker(const SpeSource& source, const Tensors& inputs, const Tensors& gradients) : s(source) {
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
  // The gate's factors of these dimensions; null without a gate.
  const T* factors(const SpeCall& call) const {
    return call.factors.defined() ? call.factors.data<T>() + h * s.d + d0 : nullptr;
  }

  const SpeSource& s;
  std::vector<SpeRowsPtr<T>> makers;
  int64_t h = 0, d0 = 0, n = 0;
};

// Rows of one head in T: in place if S is T, else a copy.
template <class S, class T>
MatrixRef<T> rows_in(const Heads<S>& x, int64_t b, int64_t h, int64_t i0, int64_t n, int64_t width,
                     Tensor& copy) {
  if constexpr (std::is_same_v<S, T>) {
    return {x.at(b, h, i0), x.row};
  } else {
    if (!copy.defined() || copy.numel() < n * width)
      copy = empty({n * width}, {.dtype = dtype_of<T>(), .device = cpu});
    for (int64_t i = 0; i < n; ++i)
      rows::convert_row(x.at(b, h, i0 + i), copy.template data<T>() + i * width, width);
    return {copy.template data<T>(), width};
  }
}

// The results y of queries and keys in a unit of positions, summed in place if S is T, else
// in a buffer.
template <class S>
class Results {
  using T = compute_t<S>;
  static constexpr bool buffered = !std::is_same_v<S, T>;

 public:
  Results(const SpeSource& s, const SpeCall& call, int64_t most)
      : r_(s.realizations), most_(most), batch_(call.sides[0].x.size(0)) {
    if (buffered) memory_ = empty({2, batch_, most_, r_}, {.dtype = dtype_of<T>(), .device = cpu});
  }
  struct Rows {
    T* data;
    int64_t ld;
    T* at(int64_t i) const { return data + i * ld; }
  };
  // The rows of the operand's positions in the unit.
  Rows rows(const SpeOperand& o, Side side, int64_t b, int64_t h, SpeSpan unit) const {
    if constexpr (buffered) {
      return {memory_.data<T>() + (int64_t(side) * batch_ + b) * most_ * r_, r_};
    } else {
      const auto y = heads_of<S>(o.y);
      return {y.at(b, h, (unit & o.span()).p0 - o.at), y.row};
    }
  }
  void store(const SpeOperand& o, Side side, int64_t h, SpeSpan unit) const {
    if constexpr (buffered) {
      const SpeSpan span = unit & o.span();
      const auto y = heads_of<S>(o.y);
      for (int64_t b = 0; b < batch_; ++b)
        for (int64_t i = 0; i < span.size(); ++i)
          rows::convert_row(rows(o, side, b, h, unit).at(i), y.at(b, h, span.p0 - o.at + i), r_);
    }
  }

 private:
  const int64_t r_, most_, batch_;
  Tensor memory_;
};

// Computes y += Σ_c x_c (a_c C_c + E_c); for the first dimensions y is overwritten.
template <class S>
void add_results(SpeWorker<compute_t<S>>& w, const SpeCall& call, const SpeOperand& o, Side side,
                 const Results<S>& results, SpeSpan unit, SpeSpan span) {
  using T = compute_t<S>;
  const int64_t batch = o.x.size(0), r = w.s.realizations;
  const int64_t at = span.p0 - (unit & o.span()).p0;
  const auto x = heads_of<S>(o.x);
  const CodeTile<T> codes = w.rows(side, span);
  const T* const gate =
      call.rows.defined() ? call.rows.data<T>() + (w.h * w.s.d + w.d0) * r : nullptr;
  constexpr bool copied = !std::is_same_v<S, T>;
  std::vector<T> numbers(size_t(copied ? batch * w.n : 0));
  std::vector<T*> y;
  std::vector<typename Results<S>::Rows> of;
  for (int64_t b = 0; b < batch; ++b) of.push_back(results.rows(o, side, b, w.h, unit));
  y.resize(of.size());
  for (int64_t i = 0; i < span.size(); ++i) {
    for (int64_t b = 0; b < batch; ++b) {
      y[size_t(b)] = of[size_t(b)].at(at + i);
      if constexpr (copied)
        rows::convert_row(x.at(b, w.h, span.p0 - o.at + i) + w.d0, numbers.data() + b * w.n, w.n);
    }
    const T* from = numbers.data();
    if constexpr (!copied) from = x.at(0, w.h, span.p0 - o.at + i) + w.d0;
    spe_kernels<T>().apply({from, copied ? w.n : x.batch}, codes.data(), i, {w.factors(call), gate},
                           {span.size(), batch, w.n, r}, y.data(), w.d0 == 0);
  }
}

// The number of positions per unit of the forward pass. Each group of dimensions is processed for
// all segments of a unit before the next group, so that per-dimension values of the row
// computations are reused.
constexpr int64_t unit_positions = 128;

template <class S>
void forward(const SpeSource& s, const Tensors& inputs, const SpeCall& call) {
  using T = compute_t<S>;
  if (call.sides[0].x.size(0) == 0) return;
  const SpeSpan all = call.span();
  const int64_t size = std::max<int64_t>(1, unit_positions / s.segment) * s.segment;
  const int64_t begin0 = s.begin(all.p0), units = (all.p1 - begin0 + size - 1) / size;
  if (all.size() == 0) return;
  parallel_for(s.heads * units, 1, [&](int64_t begin, int64_t end) {
    SpeWorker<T> worker(s, inputs, {});
    const Results<S> results(s, call, size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t h = i / units, first = begin0 + i % units * size;
      const SpeSpan unit = SpeSpan{first, first + size} & all;
      const auto each_side = [&](SpeSpan here, auto&& f) {
        for (const Side side : both_sides) {
          const SpeOperand& o = call.sides[int(side)];
          if (const SpeSpan span = here & o.span(); o.y.defined() && span.size() > 0)
            f(o, side, span);
        }
      };
      for (int64_t d0 = 0; d0 < s.d; d0 += s.dims) {
        worker.begin(h, d0);
        for (int64_t p0 = first; p0 < unit.p1; p0 += s.segment) {
          const SpeSpan here = SpeSpan{p0, p0 + s.segment} & unit;
          if (here.size() == 0) continue;
          worker.prepare(here);
          each_side(here, [&](const SpeOperand& o, Side side, SpeSpan span) {
            add_results<S>(worker, call, o, side, results, unit, span);
          });
        }
      }
      each_side(unit,
                [&](const SpeOperand& o, Side side, SpeSpan) { results.store(o, side, h, unit); });
    }
  });
}

// Computes dx ← g Eᵀ, if dx is summed in place.
template <class S>
void begin_gradients(const SpeSource& s, const SpeCall& call) {
  if constexpr (std::is_same_v<S, compute_t<S>>) {
    const int64_t batch = call.sides[0].x.size(0), r = s.realizations;
    parallel_for(2 * batch * s.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const SpeOperand& o = call.sides[i % 2];
        const int64_t b = i / 2 / s.heads, h = i / 2 % s.heads;
        if (!o.dx.defined() || o.x.size(2) == 0) continue;
        const auto g = heads_of<S>(o.y), dx = heads_of<S>(o.dx);
        gemm(o.x.size(2), s.d, r, S(1), {g.at(b, h), g.row},
             {call.rows.data<S>() + h * s.d * r, r, true}, S(0), dx.at(b, h), dx.row);
      }
    });
  }
}

// Adds dE to call.d_rows.
template <class S>
void gate_backward(const SpeSource& s, const SpeCall& call) {
  using T = compute_t<S>;
  const int64_t r = s.realizations;
  // The number of rows per product: all rows, or 256 if they are copied.
  const int64_t most = std::is_same_v<S, T> ? INT64_MAX : 256;
  parallel_for(s.heads, 1, [&](int64_t begin, int64_t end) {
    Tensor x_copy, g_copy;
    for (int64_t h = begin; h < end; ++h)
      for (const SpeOperand& o : call.sides) {
        const auto x = heads_of<S>(o.x), g = heads_of<S>(o.y);
        for (int64_t b = 0; b < o.x.size(0); ++b)
          for (int64_t i = 0, n = 0; i < o.x.size(2); i += n) {
            n = std::min(most, o.x.size(2) - i);
            MatrixRef<T> left = rows_in<S, T>(x, b, h, i, n, s.d, x_copy);
            left.transposed = true;
            gemm(s.d, r, n, T(1), left, rows_in<S, T>(g, b, h, i, n, r, g_copy), T(1),
                 call.d_rows.data<T>() + h * s.d * r, r);
          }
      }
  });
}

// An operand in a span of positions, gathered for the dimensions of a worker: x
// [positions, B, dims] and the gradient g [positions, B, R] of its result.
template <class S>
struct Gathered {
  using T = compute_t<S>;
  Gathered(const SpeSource& s, int64_t most_batch)
      : x_memory(empty({s.segment, most_batch, s.dims}, {.dtype = dtype_of<T>(), .device = cpu})),
        t_memory(empty_like(x_memory)),
        ax_memory(empty_like(x_memory)),
        gate_memory(empty_like(x_memory)),
        g_memory(empty({s.segment, most_batch, s.realizations},
                       {.dtype = dtype_of<T>(), .device = cpu})) {}

  void load(const SpeWorker<T>& w, const SpeOperand& o, SpeSpan span) {
    const int64_t r = w.s.realizations;
    batch = o.x.size(0), rows = span.size(), first = span.p0 - o.at;
    const auto from = heads_of<S>(o.x), grad = heads_of<S>(o.y);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < rows; ++i) {
        rows::convert_row(from.at(b, w.h, first + i) + w.d0, x + (i * batch + b) * w.n, w.n);
        rows::convert_row(grad.at(b, w.h, first + i), g + (i * batch + b) * r, r);
      }
  }

  void scale(const SpeWorker<T>& w, const SpeCall& call) {
    const T* const factors = w.factors(call);
    for (int64_t i = 0; i < rows * batch; ++i)
      for (int64_t c = 0; c < w.n; ++c)
        ax[i * w.n + c] = factors ? factors[c] * x[i * w.n + c] : x[i * w.n + c];
  }

  // Computes dx ← t, or dx ← a t + g Eᵀ with a gate, and da += Σ x t.
  void operand_gradients(const SpeWorker<T>& w, const CodeTile<T>& codes, const SpeCall& call,
                         const SpeOperand& o) {
    spe_kernels<T>().products(g, codes.data(), {rows, batch, w.n, w.s.realizations}, t);
    for (int64_t c = 0; call.d_factors.defined() && c < w.n; ++c) {
      double sum = 0;
      for (int64_t i = c; i < rows * batch * w.n; i += w.n) sum += double(x[i] * t[i]);
      call.d_factors.data<double>()[w.h * w.s.d + w.d0 + c] += sum;
    }
    const T* const factors = w.factors(call);
    const auto dx = heads_of<S>(o.dx);
    if (!dx) return;
    const int64_t r = w.s.realizations;
    constexpr bool in_place = std::is_same_v<S, T>;
    if (factors && !in_place)
      gemm(rows * batch, w.n, r, T(1), {g, r},
           {call.rows.data<T>() + (w.h * w.s.d + w.d0) * r, r, true}, T(0), gate, w.n);
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < rows; ++i) {
        S* to = dx.at(b, w.h, first + i) + w.d0;
        const int64_t at = (i * batch + b) * w.n;
        for (int64_t c = 0; c < w.n; ++c)
          to[c] = S(factors ? (in_place ? T(to[c]) : gate[at + c]) + factors[c] * t[at + c]
                            : t[at + c]);
      }
  }

  const Tensor x_memory, t_memory, ax_memory, gate_memory, g_memory;
  T* const x = x_memory.data<T>();
  T* const t = t_memory.data<T>();
  T* const ax = ax_memory.data<T>();  // a x
  T* const gate = gate_memory.data<T>();
  T* const g = g_memory.data<T>();
  int64_t batch = 0, rows = 0, first = 0;
};

template <class S>
void backward(const SpeSource& s, const Tensors& inputs, const std::vector<SpeCall>& calls,
              const Tensors& gradients) {
  using T = compute_t<S>;
  SpeSpan all;
  int64_t batch = 0;
  for (const SpeCall& call : calls) {
    all = all | call.span();
    batch = std::max(batch, call.sides[0].x.size(0));
    if (call.d_rows.defined()) gate_backward<S>(s, call);
    if (call.rows.defined()) begin_gradients<S>(s, call);
  }
  if (all.size() == 0) return;
  const int64_t chunks = (s.d + s.dims - 1) / s.dims, r = s.realizations;
  const int64_t n_sums = gradients.empty() ? 0 : s.dims;
  parallel_for(s.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    SpeWorker<T> worker(s, inputs, gradients);
    Gathered<S> rows(s, batch);
    const Tensor memory = empty({n_sums, s.segment, r}, {.dtype = dtype_of<T>(), .device = cpu});
    T* const sums = memory.data<T>();  // dC
    for (int64_t unit = begin; unit < end; ++unit) {
      worker.begin(unit / chunks, unit % chunks * s.dims);
      const int64_t n = worker.n;
      for (int64_t p0 = s.begin(all.p0); p0 < all.p1; p0 += s.segment) {
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
            if (n_sums == 0) continue;
            rows.scale(worker, call);
            spe_kernels<T>().weighted(rows.ax, rows.g, {rows.rows, rows.batch, n, r},
                                      sums + (span.p0 - here.p0) * r, size);
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
  if (call.sides[0].x.device().is_cuda()) return s.forward_on_cuda(inputs, call);
  dispatch_floating(call.sides[0].x.dtype(), "spe",
                    [&]<class T>() { forward<T>(s, inputs, call); });
}

void spe_backward(const SpeSource& s, const Tensors& inputs, std::vector<SpeCall> calls,
                  const Tensors& gradients) {
  if (inputs[0].device().is_cuda()) {
    for (const SpeCall& call : calls) s.backward_on_cuda(inputs, call, gradients);
    return;
  }
  const auto dtype_of_call = [](const SpeCall& call) { return call.sides[0].x.dtype(); };
  DType type = inputs[0].dtype();
  if (std::all_of(calls.begin(), calls.end(),
                  [&](const SpeCall& call) { return dtype_of_call(call) == bf16; }) &&
      !calls.empty())
    type = bf16;
  // Calls of spe() that share a cached code may have different dtypes.
  for (SpeCall& call : calls)
    for (SpeOperand& o : call.sides)
      if (o.x.dtype() != type)
        o.x = rows_contiguous(o.x.to(type)), o.y = rows_contiguous(o.y.to(type));
  dispatch_floating(type, "spe", [&]<class T>() { backward<T>(s, inputs, calls, gradients); });
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
