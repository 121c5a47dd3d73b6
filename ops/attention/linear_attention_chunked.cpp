// Chunked linear attention on the CPU, forward and backward.
//
// Positions are processed in chunks of up to `chunk`, with the sums over all earlier keys
// S = Σ_j k_j v_jᵀ [F, Dv] and z = Σ_j k_j:
//
//     P = tril(Q Kᵀ)    N = Q S + P V    D = Q z + P 1    y = N / (D + eps)    S += Kᵀ V, z += Kᵀ 1
//
// The gradients of N and D are G = g / (D + eps) and δ = −G·y = −G·N / (D + eps), where G·N is the
// dot product of each row. The backward pass computes
//
//     R = tril(G Vᵀ + δ 1ᵀ)      G·N = Σ_f Q ∘ (G Sᵀ) + Σ_j P ∘ (G Vᵀ), ∘ elementwise
//     dQ = G Sᵀ + δ zᵀ + R K     S, z recomputed, from the first chunk to the last
//     dK = V Tᵀ + 1 tᵀ + Rᵀ Q    T = Σ_i q_i G_iᵀ, t = Σ_i δ_i q_i,
//     dV = K T + Pᵀ G            from the last chunk to the first
//
// No states are stored for the backward pass, and nothing is ever subtracted from a state. Chunks
// are grouped into segments of about 512 positions. The sums of a segment start at zero: a state is
// the sum of all earlier segments, added in order, plus the sum over its segment so far.
//
// One thread computes one batch entry and key head. If there are fewer of these than threads, the
// sums of all segments are computed first. The outputs (or gradients) of all segments are then
// computed in parallel, each starting from the sums of the segments before it; the results are
// bit-identical. The strides of inputs and outputs are as in attention_fused.cpp, "Layout".
#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "ops/attention/linear_attention_chunks.h"
#include "ops/attention/linear_attention_implementations.h"
#include "ops/indexing.h"

namespace stretto {
namespace {

using namespace linear_chunks;

// Chunks grouped into segments, in ascending or (`reversed`) descending order.
struct Segments {
  std::vector<Chunk> chunks;
  int64_t per_segment, count;

  Segments(const LinearAttentionProblem& p, bool reversed)
      : chunks(chunks_of(p)),
        per_segment(std::max<int64_t>(1, 512 / p.chunk)),
        count((int64_t(chunks.size()) + per_segment - 1) / per_segment) {
    if (reversed) std::reverse(chunks.begin(), chunks.end());
  }
  template <class F>
  void each(int64_t segment, F&& f) const {
    const int64_t end = std::min(int64_t(chunks.size()), (segment + 1) * per_segment);
    for (int64_t i = segment * per_segment; i < end; ++i) f(chunks[size_t(i)]);
  }
};

// Processes the chunks of all units; a unit is a batch entry and key head. add(worker, chunk, unit)
// adds a chunk to the state. use(worker, chunk, unit) computes results with the state, and then
// adds the chunk. `before` and `after` are the states of the units before the first chunk and after
// the last chunk, or null.
template <class W, class T, class Add, class Use>
void over_segments(const LinearAttentionProblem& p, const Inputs& in, bool gradients,
                   const Segments& segments, const T* before, T* after, Add&& add, Use&& use) {
  const int64_t size = p.state_size(), units = p.units(), count = segments.count;
  const auto first = [&](int64_t unit) { return before ? before + unit * size : nullptr; };
  const auto memory = [&](int64_t n) {
    return empty({n, size}, {.dtype = dtype_of<T>(), .device = cpu});
  };
  if (units >= num_threads() || count <= 1) {
    parallel_for(units, 1, [&](int64_t begin, int64_t end) {
      W work(p, in, gradients);
      const Tensor sums = memory(count > 1 ? 1 : 0);
      for (int64_t unit = begin; unit < end; ++unit) {
        const T* from = first(unit);
        for (int64_t s = 0; s < count; ++s) {
          work.begin(from);
          segments.each(s, [&](const Chunk& c) { use(work, c, unit); });
          T* const to = s + 1 < count ? sums.template data<T>()
                        : after       ? after + unit * size
                                      : nullptr;
          if (to) add_rows(work.local(), from, to, size);
          from = to;
        }
      }
    });
    return;
  }
  const Tensor all = memory(units * count);
  const auto at = [&](int64_t unit, int64_t s) {
    return all.template data<T>() + (unit * count + s) * size;
  };
  parallel_for(units * count, 1, [&](int64_t begin, int64_t end) {
    W work(p, in, gradients);
    for (int64_t i = begin; i < end; ++i) {
      work.begin(nullptr);
      segments.each(i % count, [&](const Chunk& c) { add(work, c, i / count); });
      std::copy_n(work.local(), size, at(i / count, i % count));
    }
  });
  for (int64_t unit = 0; unit < units; ++unit) {
    const T* from = first(unit);
    for (int64_t s = 0; s < count; ++s, from = at(unit, s - 1))
      add_rows(at(unit, s), from, at(unit, s), size);
    if (after) std::copy_n(at(unit, count - 1), size, after + unit * size);
  }
  parallel_for(units * count, 1, [&](int64_t begin, int64_t end) {
    W work(p, in, gradients);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t unit = i / count, s = i % count;
      work.begin(s > 0 ? at(unit, s - 1) : first(unit));
      segments.each(s, [&](const Chunk& c) { use(work, c, unit); });
    }
  });
}

template <class S, class O>
void forward(const LinearAttentionProblem& p, const Inputs& in, const Tensor& before,
             const Tensor& after, const Tensor& out, const Tensor& totals) {
  using T = compute_t<S>;
  using W = LinearAttentionWorker<S, O>;
  const Heads<S> y = heads_of<S>(out);
  T* const to = totals.data<T>();
  const auto add = [&](W& work, const Chunk& c, int64_t unit) {
    work.load(c, unit / p.groups, unit % p.groups);
    work.add_keys_values(c);
  };
  const auto use = [&](W& work, const Chunk& c, int64_t unit) {
    const int64_t b = unit / p.groups, kh = unit % p.groups, first = kh * p.per_group();
    work.load(c, b, kh);
    if (c.rows > 0) work.prepare_state();
    for (int64_t h = first; c.rows > 0 && h < first + p.per_group(); ++h)
      work.attend(c, b, h, y, to + (b * p.heads + h) * p.m + c.i0);
    work.add_keys_values(c);
  };
  over_segments<W, T>(p, in, false, Segments(p, false),
                      before.defined() ? before.data<T>() : nullptr,
                      after.defined() ? after.data<T>() : nullptr, add, use);
}

struct Outputs {
  Tensor totals, grad;
};

struct Gradients {
  Tensor q, k, v;
};

template <class S, class O>
void backward(const LinearAttentionProblem& p, const Inputs& in, const Outputs& from,
              const Gradients& into) {
  using T = compute_t<S>;
  using W = LinearAttentionWorker<S, O>;
  const auto g = heads_of<S>(from.grad), dq = heads_of<S>(into.q), dk = heads_of<S>(into.k),
             dv = heads_of<S>(into.v);
  const Tensor deltas = empty_like(from.totals);
  const auto each_head = [&](W& work, const Chunk& c, int64_t unit, auto&& f) {
    const int64_t b = unit / p.groups, first = unit % p.groups * p.per_group();
    for (int64_t h = first; c.rows > 0 && h < first + p.per_group(); ++h) {
      const int64_t at = (b * p.heads + h) * p.m + c.i0;
      work.load_gradient(c, b, h, g, from.totals.data<T>() + at);
      f(b, h, at);
    }
  };
  const auto add_keys = [&](W& work, const Chunk& c, int64_t unit) {
    work.load(c, unit / p.groups, unit % p.groups);
    work.add_values_keys(c);
  };
  over_segments<W, T>(p, in, true, Segments(p, false), nullptr, nullptr, add_keys,
                      [&](W& work, const Chunk& c, int64_t unit) {
                        work.load(c, unit / p.groups, unit % p.groups);
                        if (c.rows > 0) work.prepare_state();
                        each_head(work, c, unit, [&](int64_t b, int64_t h, int64_t at) {
                          work.query_gradients(c, b, h, dq, from.totals.data<T>() + at,
                                               deltas.data<T>() + at);
                        });
                        work.add_values_keys(c);
                      });
  const auto add_queries = [&](W& work, const Chunk& c, int64_t unit) {
    each_head(work, c, unit, [&](int64_t b, int64_t h, int64_t at) {
      work.add_queries_to_state(c, b, h, deltas.data<T>() + at);
    });
  };
  over_segments<W, T>(p, in, true, Segments(p, true), nullptr, nullptr, add_queries,
                      [&](W& work, const Chunk& c, int64_t unit) {
                        const int64_t b = unit / p.groups, kh = unit % p.groups;
                        work.load(c, b, kh);
                        if (c.keys > 0) work.prepare_state();
                        const auto to = work.begin_keys(c, b, kh, dk, dv);
                        each_head(work, c, unit, [&](int64_t, int64_t h, int64_t at) {
                          work.add_queries(c, b, h, deltas.data<T>() + at, to);
                        });
                        work.end_keys(c, b, kh, to, dk, dv);
                      });
}

// Adds one key to the state [F, Dv + 1] and multiplies the query by the new state, in one loop:
// to = S + k [v, 1]ᵀ, sums = q · to.
template <class T, class S>
STRETTO_CLONES void step(const T* __restrict s, const S* __restrict k, const S* __restrict v,
                         const S* __restrict q, T* __restrict to, T* __restrict sums, int64_t n,
                         int64_t dv) {
  const int64_t width = dv + 1;
  std::fill_n(sums, width, T(0));
  for (int64_t i = 0; i < n; ++i, to += width, s += width) {
    const T ki = T(k[i]), qi = T(q[i]);
    for (int64_t j = 0; j < dv; ++j) {
      const T sum = s[j] + ki * T(v[j]);
      to[j] = sum;
      sums[j] += qi * sum;
    }
    to[dv] = s[dv] + ki;
    sums[dv] += qi * to[dv];
  }
}

// sums = q S.
template <class T, class S>
STRETTO_CLONES void read_state(const S* q, const T* s, T* sums, int64_t n, int64_t width) {
  std::fill_n(sums, width, T(0));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) sums[j] += T(q[i]) * s[i * width + j];
}

// One token of generation: from the state `before` to the state `after`, both [B, G, F, Dv + 1].
template <class S>
void forward_token(const LinearAttentionProblem& p, const Inputs& in, const Tensor& before,
                   const Tensor& after, const Tensor& out) {
  using T = compute_t<S>;
  const auto q = heads_of<S>(in.q), k = heads_of<S>(in.k), v = heads_of<S>(in.v),
             y = heads_of<S>(out);
  const int64_t size = p.state_size(), width = p.dv + 1;
  parallel_for(p.units(), 1, [&](int64_t begin, int64_t end) {
    const Tensor row = empty({width}, options_of(after));
    T* const sums = row.data<T>();
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t b = unit / p.groups, kh = unit % p.groups, first = kh * p.per_group();
      const T* s = before.data<T>() + unit * size;
      T* const to = after.data<T>() + unit * size;
      const bool padded = in.padding.defined() && in.padding.data<uint8_t>()[b];
      if (padded) std::copy_n(s, size, to);
      for (int64_t h = first; h < first + p.per_group(); ++h) {
        if (h == first && !padded)
          step(s, k.at(b, kh), v.at(b, kh), q.at(b, h), to, sums, p.f, p.dv);
        else
          read_state(q.at(b, h), to, sums, p.f, width);
        divide_row(sums, sums[p.dv] + T(p.eps), y.at(b, h), p.dv);
      }
    }
  });
}

// Converts the state of the op, [units, F, Dv + 1], to S [F, Dv] followed by z [F].
Tensor split_state(const LinearAttentionProblem& p, const Tensor& sums) {
  const Tensor all = sums.detach().reshape({p.units(), p.f, p.dv + 1});
  return cat({all.slice(2, 0, p.dv).reshape({p.units(), p.f * p.dv}), all.select(2, p.dv)}, 1);
}
// The inverse of split_state.
Tensor joined_state(const LinearAttentionProblem& p, const Tensor& all) {
  const Tensor s = all.slice(1, 0, p.f * p.dv).reshape({p.batch, p.groups, p.f, p.dv});
  return cat({s, all.slice(1, p.f * p.dv).reshape({p.batch, p.groups, p.f, 1})}, 3);
}

// Calls f with a value of the type of inputs and outputs, and one of the type of
// operands of products.
template <class F>
void with_types(const LinearAttentionProblem& p, DType type, F&& f) {
  if (type == f64) return f(double(), double());
  if (type == f32) return f(float(), float());
  // Products of few rows gain nothing from bf16 tiles.
  const bool rounds = has_bf16_products() && std::min(p.chunk, std::max(p.m, p.n)) >= 16;
  rounds ? f(BFloat16(), BFloat16()) : f(BFloat16(), float());
}

}  // namespace

Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                LinearState* state, const LinearAttentionOptions& o,
                                Tensor* denominators) {
  const LinearAttentionProblem p{.batch = q.size(0),
                                 .heads = q.size(1),
                                 .groups = k.size(1),
                                 .m = q.size(2),
                                 .n = k.size(2),
                                 .f = q.size(3),
                                 .dv = v.size(3),
                                 .causal = o.mask.causal,
                                 .eps = o.eps,
                                 .chunk = o.chunk};
  const Tensor padding =
      o.mask.key_padding.defined() ? o.mask.key_padding.to(u8).contiguous() : Tensor();
  auto inputs_of = [padding](const Tensor& q_, const Tensor& k_, const Tensor& v_) {
    return Inputs{rows_contiguous(q_), rows_contiguous(k_), rows_contiguous(v_), padding};
  };
  const DType type = q.dtype();
  const TensorOptions sums{.dtype = compute_type(type), .device = cpu};
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, type);
  const Inputs in = inputs_of(q, k, v);
  if (state && state->sums.defined() && p.m == 1 && p.n == 1) {
    const Tensor before = state->sums.detach().contiguous(), after = empty_like(before);
    dispatch_floating(type, "linear_attention",
                      [&]<class T>() { forward_token<T>(p, in, before, after, out); });
    state->sums = after;
    return out;
  }
  Tensor before, after;
  if (state) {
    after = zeros({p.units(), p.state_size()}, sums);
    if (state->sums.defined()) before = split_state(p, state->sums);
    if (p.m + p.n == 0 && before.defined()) after = before;
  }
  const Tensor totals = empty({p.batch, p.heads, p.m}, sums);
  with_types(p, type, [&](auto s, auto operand) {
    forward<decltype(s), decltype(operand)>(p, in, before, after, out, totals);
  });
  if (denominators) *denominators = totals;
  if (state) {
    state->sums = joined_state(p, after);
    return out;
  }
  const auto composed = [o, type](const Tensors& x) {
    const DType wide = compute_type(type);
    return composed_linear_attention(x[0].to(wide), x[1].to(wide), x[2].to(wide), nullptr, o)
        .to(type);
  };
  // Gradients: G Sᵀ + δ zᵀ + R K, V Tᵀ + 1 tᵀ + Rᵀ Q, K T + Pᵀ G.
  return record("linear_attention", {q, k, v}, out,
                [=, sq = Saved(q), sk = Saved(k), sv = Saved(v)](Backward& b) {
                  if (grad_enabled()) return composed_gradient(b, composed, {sq(), sk(), sv()});
                  const Inputs again = inputs_of(sq(), sk(), sv());
                  const Outputs from{totals, rows_contiguous(b.grad())};
                  const Gradients g{heads_like(sq()), heads_like(sk()), heads_like(sv())};
                  with_types(p, type, [&](auto s, auto operand) {
                    backward<decltype(s), decltype(operand)>(p, again, from, g);
                  });
                  return Tensors{g.q, g.k, g.v};
                });
}

}  // namespace stretto
