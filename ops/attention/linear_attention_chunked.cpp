// Chunked linear attention on the CPU, forward and backward.
//
// The values get a column of ones, V' = [V, 1], so that numerator and denominator are one product,
// [N, D] = Σ_j (q_i·k_j) V'_j, and one state S = Σ_j k_j V'_jᵀ [F, Dv + 1] serves both. Positions
// are taken in pieces of up to `chunk` of them:
//
//     [N, D] = Q S + tril(Q Kᵀ) V'        S ← S + Kᵀ V'        y = N / (D + eps)
//
// With G' = [g, −g·y] / (D + eps), the gradient of [N, D], backward is
//
//     dQ  = G' Sᵀ + tril(G' V'ᵀ) K         S computed again, from the first piece to the last
//     dK  = V' Tᵀ + tril(G' V'ᵀ)ᵀ Q        T = Σ_i q_i G'_iᵀ, from the last piece to the first
//     dV' = K T   + tril(Q Kᵀ)ᵀ G'
//
// so no state is stored, and none is ever subtracted from. One batch entry and key head is computed
// by one thread, which adds its query heads in order: results do not depend on the number of
// threads. Layout as in attention_fused.cpp.
#include "ops/attention/linear_attention_chunked.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "core/gemm/gemm.h"
#include "ops/attention/heads.h"
#include "ops/attention/linear_attention_composed.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/rows.h"

namespace stretto {
namespace {

struct Problem {
  int64_t batch, heads, groups, m, n, f, dv;
  bool causal;
  double eps;
  int64_t chunk;

  int64_t per_group() const { return heads / groups; }
  int64_t width() const { return dv + 1; }
};

// Queries that see all keys of the pieces before, and of the keys of their own piece those up to
// their own position: a piece has only queries, only keys, or as many of both.
struct Piece {
  int64_t i0, rows;
  int64_t j0, keys;
};

std::vector<Piece> pieces_of(const Problem& p) {
  std::vector<Piece> all;
  auto add = [&](int64_t i0, int64_t rows, int64_t j0, int64_t keys) {
    for (int64_t at = 0; at < std::max(rows, keys); at += p.chunk)
      all.push_back({i0 + at, std::clamp<int64_t>(rows - at, 0, p.chunk), j0 + at,
                     std::clamp<int64_t>(keys - at, 0, p.chunk)});
  };
  const int64_t common = p.causal ? std::min(p.m, p.n) : 0;
  if (p.causal) add(0, p.m - common, 0, 0);  // before the first key
  add(0, 0, 0, p.n - common);
  add(p.m - common, common, p.n - common, common);
  if (!p.causal) add(0, p.m, 0, 0);
  return all;
}

struct Inputs {
  Tensor q, k, v, padding;
};

// y = n / (d + eps), and d + eps.
template <class T>
STRETTO_CLONES T divide_row(const T* sums, T eps, T* y, int64_t n) {
  const T total = sums[n] + eps;
  for (int64_t i = 0; i < n; ++i) y[i] = total == T(0) ? T(0) : sums[i] / total;
  return total;
}

// G' of one row.
template <class T>
STRETTO_CLONES void ratio_gradient(const T* g, const T* y, T total, T* out, int64_t n) {
  if (total == T(0)) {
    std::fill(out, out + n + 1, T(0));
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] / total;
  out[n] = -rows::sum<T>(n, [&](int64_t i) { return out[i] * y[i]; });
}

// One key and the query that sees it last, with the state read once: to = S + k v'ᵀ, y = q to.
template <class T>
STRETTO_CLONES void step(const T* __restrict s, const T* __restrict k, const T* __restrict v,
                         const T* __restrict q, T* __restrict to, T* __restrict y, int64_t n,
                         int64_t width) {
  std::fill_n(y, width, T(0));
  for (int64_t i = 0; i < n; ++i) {
    const T ki = k[i], qi = q[i];
    for (int64_t j = 0; j < width; ++j) {
      const T sum = s[i * width + j] + ki * v[j];
      to[i * width + j] = sum;
      y[j] += qi * sum;
    }
  }
}

template <class T>
class Worker {
 public:
  Worker(const Problem& p, const Inputs& in, bool gradients)
      : p_(p),
        q_(heads_of<T>(in.q)),
        k_(heads_of<T>(in.k)),
        v_(heads_of<T>(in.v)),
        padding_(in.padding.defined() ? in.padding.data<uint8_t>() : nullptr) {
    // One block for all: a token needs so little that asking for it would take longer.
    const int64_t c = std::min(p.chunk, std::max(p.m, p.n)), w = p.width();
    const std::pair<T**, int64_t> parts[] = {{&values_, c * w},
                                             {&rows_, c * w},
                                             {&sums_, p.f * w},
                                             {&products_, p.causal ? c * c : 0},
                                             {&keys_, padding_ ? c * p.f : 0},
                                             {&value_gradients_, gradients ? c * w : 0}};
    const auto apart = [](int64_t n) { return (n + 15) / 16 * 16; };
    int64_t size = 0;
    for (const auto& [part, n] : parts) size += apart(n);
    memory_ = empty({size}, {.dtype = dtype_of<T>(), .device = cpu});
    T* next = memory_.template data<T>();
    for (const auto& [part, n] : parts) *part = std::exchange(next, next + apart(n));
  }

  T* rows() { return rows_; }  // [rows, Dv + 1]: [N, D] or G'
  T* values() { return values_; }
  T* value_gradients() { return value_gradients_; }
  T* products() { return products_; }
  T* sums() { return sums_; }
  T* clean_sums() {
    std::fill_n(sums_, p_.f * p_.width(), T(0));
    return sums_;
  }

  MatrixRef<T> queries(const Piece& c, int64_t b, int64_t h) const {
    return {q_.at(b, h, c.i0), q_.row};
  }
  MatrixRef<T> keys() const { return key_rows_; }
  bool padded(const Piece& c, int64_t b, int64_t j) const {
    return padding_ && padding_[b * p_.n + c.j0 + j];
  }

  // V' of a piece, and its keys; zeros for padding.
  void load(const Piece& c, int64_t b, int64_t kh) {
    if (c.keys == 0) return;
    const int64_t w = p_.width();
    for (int64_t j = 0; j < c.keys; ++j) {
      T* to = values() + j * w;
      const bool none = padded(c, b, j);
      if (none)
        std::fill(to, to + w, T(0));
      else
        *std::copy_n(v_.at(b, kh, c.j0 + j), p_.dv, to) = T(1);
    }
    key_rows_ = {k_.at(b, kh, c.j0), k_.row};
    if (!padding_) return;
    T* copy = keys_;
    for (int64_t j = 0; j < c.keys; ++j) {
      if (padded(c, b, j))
        std::fill(copy + j * p_.f, copy + (j + 1) * p_.f, T(0));
      else
        std::copy_n(k_.at(b, kh, c.j0 + j), p_.f, copy + j * p_.f);
    }
    key_rows_ = {copy, p_.f};
  }

  // tril(A Bᵀ), both with the rows of a piece.
  void lower_products(const Piece& c, int64_t inner, MatrixRef<T> a, MatrixRef<T> b) {
    b.transposed = true;
    gemm(c.rows, c.keys, inner, T(1), a, b, T(0), products(), c.keys);
    for (int64_t i = 0; i < c.rows; ++i)
      std::fill(products() + i * c.keys + i + 1, products() + (i + 1) * c.keys, T(0));
  }

  // S ← from + Kᵀ V', where `from` may be S itself.
  void take_in(const Piece& c, const T* from, T* sums) {
    MatrixRef<T> k = keys();
    if (from != sums) std::copy_n(from, p_.f * p_.width(), sums);
    k.transposed = true;
    gemm(p_.f, p_.width(), c.keys, T(1), k, {values(), p_.width()}, T(1), sums, p_.width());
  }

  // Sᵀ ← Sᵀ + V'ᵀ K.
  void take_in_transposed(const Piece& c, T* sums) {
    gemm(p_.width(), p_.f, c.keys, T(1), {values(), p_.width(), true}, keys(), T(1), sums, p_.f);
  }

 private:
  const Problem& p_;
  const Heads<T> q_, k_, v_;
  const uint8_t* padding_;
  Tensor memory_;
  T *values_, *rows_, *sums_, *products_, *keys_, *value_gradients_;
  MatrixRef<T> key_rows_{};
};

// The sums of a state, [B, G, F, Dv + 1]. `before` is undefined before any key, `after` without a
// state. They are not the same memory: a thread may run out of it while others are done.
struct Sums {
  Tensor before, after;
};

template <class T>
void forward(const Problem& p, const Inputs& in, const Sums& sums, const Tensor& out,
             const Tensor& totals) {
  const Heads<T> y = heads_of<T>(out);
  const int64_t w = p.width();
  const std::vector<Piece> pieces = pieces_of(p);
  parallel_for(p.batch * p.groups, 1, [&](int64_t begin, int64_t end) {
    Worker<T> work(p, in, false);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / p.groups, kh = at % p.groups;
      T* to = sums.after.defined() ? sums.after.data<T>() + at * p.f * w : work.sums();
      const T* s = to;
      if (sums.before.defined())
        s = sums.before.data<T>() + at * p.f * w;
      else
        std::fill_n(to, p.f * w, T(0));
      for (const Piece& c : pieces) {
        work.load(c, b, kh);
        const int64_t first = kh * p.per_group();
        const bool token = c.rows == 1 && c.keys == 1 && s != to;
        if (token)
          step(std::exchange(s, to), work.keys().data, work.values(),
               work.queries(c, b, first).data, to, work.rows(), p.f, w);
        for (int64_t h = first; c.rows > 0 && h < first + p.per_group(); ++h) {
          const MatrixRef<T> q = work.queries(c, b, h);
          if (!token || h > first) gemm(c.rows, w, p.f, T(1), q, {s, w}, T(0), work.rows(), w);
          if (c.keys > 0 && !token) {
            work.lower_products(c, p.f, q, work.keys());
            gemm(c.rows, w, c.keys, T(1), {work.products(), c.keys}, {work.values(), w}, T(1),
                 work.rows(), w);
          }
          for (int64_t i = 0; i < c.rows; ++i)
            totals.data<T>()[(b * p.heads + h) * p.m + c.i0 + i] =
                divide_row(work.rows() + i * w, T(p.eps), y.at(b, h, c.i0 + i), p.dv);
        }
        if (c.keys > 0 && !token) work.take_in(c, std::exchange(s, to), to);
      }
      if (s != to) std::copy_n(s, p.f * w, to);  // no keys came
    }
  });
}

struct Outputs {
  Tensor y, totals, grad;
};

struct Gradients {
  Tensor q, k, v;
};

template <class T>
void backward(const Problem& p, const Inputs& in, const Outputs& from, const Gradients& into) {
  const auto y = heads_of<T>(from.y), g = heads_of<T>(from.grad), dq = heads_of<T>(into.q),
             dk = heads_of<T>(into.k), dv = heads_of<T>(into.v);
  const T* totals = from.totals.data<T>();
  const int64_t w = p.width();
  const std::vector<Piece> pieces = pieces_of(p);
  parallel_for(p.batch * p.groups, 1, [&](int64_t begin, int64_t end) {
    Worker<T> work(p, in, true);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / p.groups, kh = at % p.groups;
      const int64_t first_head = kh * p.per_group(), last_head = first_head + p.per_group();
      auto load_gradient = [&](const Piece& c, int64_t h) {
        for (int64_t i = 0; i < c.rows; ++i)
          ratio_gradient(g.at(b, h, c.i0 + i), y.at(b, h, c.i0 + i),
                         totals[(b * p.heads + h) * p.m + c.i0 + i], work.rows() + i * w, p.dv);
        return MatrixRef<T>{work.rows(), w};
      };
      T* s = work.clean_sums();  // Sᵀ: BLAS is slower where it is to transpose a small right factor
      for (const Piece& c : pieces) {
        work.load(c, b, kh);
        for (int64_t h = first_head; c.rows > 0 && h < last_head; ++h) {
          const MatrixRef<T> gs = load_gradient(c, h);
          T* to = dq.at(b, h, c.i0);
          gemm(c.rows, p.f, w, T(1), gs, {s, p.f}, T(0), to, dq.row);
          if (c.keys == 0) continue;
          work.lower_products(c, w, gs, {work.values(), w});
          gemm(c.rows, p.f, c.keys, T(1), {work.products(), c.keys}, work.keys(), T(1), to, dq.row);
        }
        if (c.keys > 0) work.take_in_transposed(c, s);
      }

      T* t = work.clean_sums();
      for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
        const Piece& c = *piece;
        work.load(c, b, kh);
        const MatrixRef<T> values{work.values(), w};
        T *to_keys = nullptr, *to_values = work.value_gradients();
        if (c.keys > 0) {
          to_keys = dk.at(b, kh, c.j0);
          gemm(c.keys, p.f, w, T(1), values, {t, w, true}, T(0), to_keys, dk.row);
          gemm(c.keys, w, p.f, T(1), work.keys(), {t, w}, T(0), to_values, w);
        }
        for (int64_t h = first_head; c.rows > 0 && h < last_head; ++h) {
          const MatrixRef<T> gs = load_gradient(c, h);
          MatrixRef<T> q = work.queries(c, b, h);
          if (c.keys > 0) {
            const MatrixRef<T> by_key{work.products(), c.keys, true};
            work.lower_products(c, w, gs, values);
            gemm(c.keys, p.f, c.rows, T(1), by_key, q, T(1), to_keys, dk.row);
            work.lower_products(c, p.f, q, work.keys());
            gemm(c.keys, w, c.rows, T(1), by_key, gs, T(1), to_values, w);
          }
          q.transposed = true;
          gemm(p.f, w, c.rows, T(1), q, gs, T(1), t, w);
        }
        for (int64_t j = 0; j < c.keys; ++j) {
          T *key = to_keys + j * dk.row, *value = dv.at(b, kh, c.j0 + j);
          std::copy_n(to_values + j * w, p.dv, value);
          if (!work.padded(c, b, j)) continue;
          std::fill(key, key + p.f, T(0));
          std::fill(value, value + p.dv, T(0));
        }
      }
    }
  });
}

}  // namespace

Tensor chunked_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                LinearState* state, const LinearAttentionOptions& o) {
  const Problem p{.batch = q.size(0),
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
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, type, false);
  const Tensor totals = empty({p.batch, p.heads, p.m}, {.dtype = type, .device = cpu});
  const Inputs in = inputs_of(q, k, v);
  Sums sums;
  if (state) {
    sums.after = empty({p.batch, p.groups, p.f, p.width()}, {.dtype = type, .device = cpu});
    if (state->sums.defined()) sums.before = state->sums.detach().contiguous();
  }
  type == f64 ? forward<double>(p, in, sums, out, totals)
              : forward<float>(p, in, sums, out, totals);
  if (state) state->sums = sums.after;
  const auto composed = [o](const Tensors& x) {
    return composed_linear_attention(x[0], x[1], x[2], nullptr, o);
  };
  // Gradients: G' Sᵀ + tril(G' V'ᵀ) K, V' Tᵀ + tril(G' V'ᵀ)ᵀ Q, K T + tril(Q Kᵀ)ᵀ G'.
  return record(
      "linear_attention", {q, k, v}, out,
      [=, sq = Saved(q), sk = Saved(k), sv = Saved(v)](Backward& b) {
        if (grad_enabled()) return composed_gradient(b, composed, {sq(), sk(), sv()});
        const Inputs again = inputs_of(sq(), sk(), sv());
        const Outputs from{rows_contiguous(b.output()), totals, rows_contiguous(b.grad())};
        const Gradients g{heads_like(sq()), heads_like(sk()), heads_like(sv())};
        type == f64 ? backward<double>(p, again, from, g) : backward<float>(p, again, from, g);
        return Tensors{g.q, g.k, g.v};
      },
      Keep::outputs);
}

}  // namespace stretto
