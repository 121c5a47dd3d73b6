// Chunked linear attention on the CPU: the state and the steps of one thread, which processes one
// chunk of positions after the other (the equations are in
// ops/attention/linear_attention_chunked.cpp). Internal to ops/.
//
//   dtype    S: inputs, outputs   O: operands of products   T: sums
//   f64      f64                  f64                       f64
//   f32      f32                  f32                       f32
//   bf16     bf16                 bf16, or f32              f32
//
// If O is bf16, only the products q·k, the states and g / denominator are rounded, where they are
// operands of products. If S is bf16 and O is f32, the operands of a chunk are converted copies.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../core/gemm/gemm.h"
#include "../loops.h"
#include "../rows.h"
#include "heads.h"
#include "work_memory.h"

namespace stretto::linear_chunks {
namespace {

struct LinearAttentionProblem {
  int64_t batch, heads, groups, m, n, f, dv;
  bool causal;
  double eps;
  int64_t chunk;

  int64_t per_group() const { return heads / groups; }
  int64_t units() const { return batch * groups; }
  int64_t state_size() const { return f * (dv + 1); }  // S [F, Dv] or its transpose, then z [F]
};

// A chunk of positions. Its queries see all keys of earlier chunks and, in their own chunk, the
// keys up to their own position. A chunk has only queries, only keys, or equal numbers of both.
struct Chunk {
  int64_t i0, rows;
  int64_t j0, keys;
};

inline std::vector<Chunk> chunks_of(const LinearAttentionProblem& p) {
  std::vector<Chunk> all;
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

// to = a + b; b may be null.
template <class T, class To>
STRETTO_CLONES void add_rows(const T* a, const T* b, To* to, int64_t n) {
  if (b)
    for (int64_t i = 0; i < n; ++i) to[i] = To(a[i] + b[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = To(a[i]);
}

// The rounding error of add_rows: rest = a + b − to.
template <class T, class To>
STRETTO_CLONES void rest_of_rows(const T* a, const T* b, const To* to, To* rest, int64_t n) {
  if (b)
    for (int64_t i = 0; i < n; ++i) rest[i] = To((a[i] + b[i]) - T(to[i]));
  else
    for (int64_t i = 0; i < n; ++i) rest[i] = To(a[i] - T(to[i]));
}

// q·z plus the sum of n products.
template <class T, class O>
STRETTO_CLONES T denominator(const O* q, const T* z, int64_t f, const T* products, int64_t n) {
  return rows::sum<T>(f, [&](int64_t i) { return T(q[i]) * z[i]; }) +
         rows::sum<T>(n, [&](int64_t j) { return products[j]; });
}

// y = sums / total.
template <class T, class S>
STRETTO_CLONES void divide_row(const T* sums, T total, S* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = S(total == T(0) ? T(0) : sums[i] / total);
}

// G = g / total.
template <class T, class S, class O>
STRETTO_CLONES void divide_gradient(const S* g, T total, O* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = O(total == T(0) ? T(0) : T(g[i]) / total);
}

// δ = −(q·a + Σ p r) / total.
template <class T, class O>
STRETTO_CLONES T denominator_gradient(const O* q, const T* a, int64_t f, const T* p, const T* r,
                                      int64_t n, T total) {
  const T dot = rows::sum<T>(f, [&](int64_t i) { return T(q[i]) * a[i]; }) +
                rows::sum<T>(n, [&](int64_t j) { return p[j] * r[j]; });
  return total == T(0) ? T(0) : -dot / total;
}

// A row of a lower triangle: n elements x + more, of which element n − 1 is on the
// diagonal, then zeros.
template <class T, class O>
STRETTO_CLONES void lower_row(const T* x, T more, int64_t n, int64_t width, O* to) {
  for (int64_t j = 0; j < n; ++j) to[j] = O(x[j] + more);
  std::fill(to + n, to + width, O(T(0)));
}

template <class S, class O>
class LinearAttentionWorker {
  using T = compute_t<S>;
  static constexpr bool copies = !std::is_same_v<S, O>;  // inputs are converted to operands
  static constexpr bool rounds = !std::is_same_v<O, T>;  // sums are rounded to operands
  static constexpr bool stores = !std::is_same_v<S, T>;  // sums are converted to results

 public:
  LinearAttentionWorker(const LinearAttentionProblem& p, const Inputs& in, bool gradients)
      : p_(p),
        q_(heads_of<S>(in.q)),
        k_(heads_of<S>(in.k)),
        v_(heads_of<S>(in.v)),
        padding_(in.padding.defined() ? in.padding.data<uint8_t>() : nullptr) {
    const int64_t c = std::min(p.chunk, std::max(p.m, p.n)), size = p.f * p.dv;
    const int64_t square = p.causal ? c * c : 0;
    const bool both = copies || padding_;
    sums_memory_ = work_memory<T>({{&rows_, !gradients ? c * p.dv
                                            : stores   ? c * p.f
                                                       : 0},
                                   {&more_rows_, gradients && stores ? c * p.dv : 0},
                                   {&more_products_, gradients ? square : 0},
                                   {&products_, square},
                                   {&local_, p.state_size()},
                                   {&z_, p.f},
                                   {&state_, rounds ? 0 : size}});
    operand_memory_ = work_memory<O>({{&gradient_, gradients ? c * p.dv : 0},
                                      {&lower_, rounds ? square : 0},
                                      {&rounded_state_, rounds ? 2 * size : 0},
                                      {&queries_, copies ? c * p.f : 0},
                                      {&keys_, both ? c * p.f : 0},
                                      {&values_, both ? c * p.dv : 0}});
  }

  // ---- the state: the sum before the segment plus the sum of the segment's own chunks so far

  void begin(const T* before) {
    before_ = before;
    std::fill_n(local_, p_.state_size(), T(0));
  }
  const T* local() const { return local_; }

  // Prepares the state as an operand of the products that follow, and z.
  void prepare_state() {
    const int64_t size = p_.f * p_.dv;
    add_rows(local_ + size, before_ ? before_ + size : nullptr, z_, p_.f);
    if constexpr (rounds) {
      add_rows(local_, before_, rounded_state_, size);
      rest_of_rows(local_, before_, rounded_state_, rounded_state_ + size, size);
    } else if (before_) {
      add_rows(local_, before_, state_, size);
    }
  }

  // ---- chunks

  bool padded(const Chunk& c, int64_t b, int64_t j) const {
    return padding_ && padding_[b * p_.n + c.j0 + j];
  }

  // Loads keys and values, with zeros for padding.
  void load(const Chunk& c, int64_t b, int64_t kh) {
    if (c.keys == 0) return;
    key_rows_ = operand(k_, b, kh, c.j0, c.keys, p_.f, keys_, padding_ != nullptr);
    value_rows_ = operand(v_, b, kh, c.j0, c.keys, p_.dv, values_, padding_ != nullptr);
    for (int64_t j = 0; padding_ && j < c.keys; ++j) {
      if (!padded(c, b, j)) continue;
      std::fill_n(keys_ + j * p_.f, p_.f, O(T(0)));
      std::fill_n(values_ + j * p_.dv, p_.dv, O(T(0)));
    }
  }

  // S += Kᵀ V, z += Σ k.
  void add_keys_values(const Chunk& c) {
    if (c.keys == 0) return;
    product(p_.f, p_.dv, c.keys, transposed(key_rows_), value_rows_, 1, local_, p_.dv);
    add_keys(c);
  }
  // The same with Sᵀ += Vᵀ K.
  void add_values_keys(const Chunk& c) {
    if (c.keys == 0) return;
    product(p_.dv, p_.f, c.keys, transposed(value_rows_), key_rows_, 1, local_, p_.f);
    add_keys(c);
  }

  // Computes y of one head.
  void attend(const Chunk& c, int64_t b, int64_t h, const Heads<S>& y, T* totals) {
    const MatrixRef<O> q = queries(c, b, h);
    times_state(c.rows, p_.dv, p_.f, q, false, 0, rows_, p_.dv);
    if (c.keys > 0) product(c.rows, c.keys, p_.f, q, transposed(key_rows_), 0, products_, c.keys);
    for (int64_t i = 0; i < c.rows; ++i)
      totals[i] = T(p_.eps) + denominator(q.data + i * q.ld, z_, p_.f, products_ + i * c.keys,
                                          c.keys > 0 ? i + 1 : 0);
    if (c.keys > 0) product(c.rows, p_.dv, c.keys, lower(c), value_rows_, 1, rows_, p_.dv);
    for (int64_t i = 0; i < c.rows; ++i)
      divide_row(rows_ + i * p_.dv, totals[i], y.at(b, h, c.i0 + i), p_.dv);
  }

  // Computes G of one head.
  void load_gradient(const Chunk& c, int64_t b, int64_t h, const Heads<S>& g, const T* totals) {
    for (int64_t i = 0; i < c.rows; ++i)
      divide_gradient(g.at(b, h, c.i0 + i), totals[i], gradient_ + i * p_.dv, p_.dv);
  }

  // Computes dQ and δ of one head; the state is Sᵀ. δ zᵀ nearly cancels the other terms of dQ, so δ
  // is computed from these terms and not from y, which may be rounded.
  void query_gradients(const Chunk& c, int64_t b, int64_t h, const Heads<S>& dq, const T* totals,
                       T* deltas) {
    const MatrixRef<O> q = queries(c, b, h);
    const auto [to, ld] = rows_to(dq, b, h, c.i0, rows_, p_.f);
    times_state(c.rows, p_.f, p_.dv, gradients(), false, 0, to, ld);
    if (c.keys > 0) {
      product(c.rows, c.keys, p_.f, q, transposed(key_rows_), 0, more_products_, c.keys);
      value_products(c);
    }
    for (int64_t i = 0; i < c.rows; ++i) {
      deltas[i] =
          denominator_gradient(q.data + i * q.ld, to + i * ld, p_.f, more_products_ + i * c.keys,
                               products_ + i * c.keys, c.keys > 0 ? i + 1 : 0, totals[i]);
      rows::add_scaled(z_, deltas[i], to + i * ld, p_.f);
    }
    if (c.keys > 0) product(c.rows, p_.f, c.keys, lower(c, deltas), key_rows_, 1, to, ld);
    store(to, dq, b, h, c.i0, c.rows, p_.f);
  }

  // dK and dV of a chunk, to which the query heads of its key head are added in
  // order; the state is T.
  struct KeyGradients {
    T *keys, *values;
    int64_t ld_keys, ld_values;
  };
  KeyGradients begin_keys(const Chunk& c, int64_t b, int64_t kh, const Heads<S>& dk,
                          const Heads<S>& dv) {
    if (c.keys == 0) return {};
    const auto [keys, ld_keys] = rows_to(dk, b, kh, c.j0, rows_, p_.f);
    const auto [values, ld_values] = rows_to(dv, b, kh, c.j0, more_rows_, p_.dv);
    for (int64_t j = 0; j < c.keys; ++j) std::copy_n(z_, p_.f, keys + j * ld_keys);
    times_state(c.keys, p_.f, p_.dv, value_rows_, true, 1, keys, ld_keys);
    times_state(c.keys, p_.dv, p_.f, key_rows_, false, 0, values, ld_values);
    return {keys, values, ld_keys, ld_values};
  }
  // T += Qᵀ G of one head, and t += Σ δ q.
  void add_queries_to_state(const Chunk& c, int64_t b, int64_t h, const T* deltas) {
    add_queries_to_state(c, queries(c, b, h), deltas);
  }
  // Adds the queries of one head to a chunk's dK and dV, and to T and t.
  void add_queries(const Chunk& c, int64_t b, int64_t h, const T* deltas, const KeyGradients& to) {
    const MatrixRef<O> q = queries(c, b, h);
    if (c.keys > 0) {
      value_products(c);
      product(c.keys, p_.f, c.rows, transposed(lower(c, deltas)), q, 1, to.keys, to.ld_keys);
      product(c.rows, c.keys, p_.f, q, transposed(key_rows_), 0, products_, c.keys);
      product(c.keys, p_.dv, c.rows, transposed(lower(c)), gradients(), 1, to.values, to.ld_values);
    }
    add_queries_to_state(c, q, deltas);
  }
  void end_keys(const Chunk& c, int64_t b, int64_t kh, const KeyGradients& from, const Heads<S>& dk,
                const Heads<S>& dv) {
    store(from.keys, dk, b, kh, c.j0, c.keys, p_.f);
    store(from.values, dv, b, kh, c.j0, c.keys, p_.dv);
    for (int64_t j = 0; padding_ && j < c.keys; ++j) {
      if (!padded(c, b, j)) continue;
      std::fill_n(dk.at(b, kh, c.j0 + j), p_.f, S(T(0)));
      std::fill_n(dv.at(b, kh, c.j0 + j), p_.dv, S(T(0)));
    }
  }

 private:
  static MatrixRef<O> transposed(MatrixRef<O> x) { return {x.data, x.ld, true}; }
  static void product(int64_t m, int64_t n, int64_t k, MatrixRef<O> a, MatrixRef<O> b, int beta,
                      T* c, int64_t ldc) {
    gemm(m, n, k, T(1), a, b, T(beta), c, ldc);
  }
  // A · state or A · stateᵀ. In bf16 the state is the sum of two operands.
  void times_state(int64_t m, int64_t n, int64_t k, MatrixRef<O> a, bool transposed, int beta, T* c,
                   int64_t ldc) {
    const int64_t ld = transposed ? k : n;
    if constexpr (rounds) {
      product(m, n, k, a, {rounded_state_, ld, transposed}, beta, c, ldc);
      product(m, n, k, a, {rounded_state_ + p_.f * p_.dv, ld, transposed}, 1, c, ldc);
    } else {
      product(m, n, k, a, {before_ ? state_ : local_, ld, transposed}, beta, c, ldc);
    }
  }

  // Rows of an input as an operand: in place, or a copy.
  MatrixRef<O> operand(const Heads<S>& x, int64_t b, int64_t h, int64_t i0, int64_t n,
                       int64_t width, O* copy, bool always = false) const {
    if constexpr (!copies)
      if (!always) return {x.at(b, h, i0), x.row};
    for (int64_t i = 0; i < n; ++i) rows::convert_row(x.at(b, h, i0 + i), copy + i * width, width);
    return {copy, width};
  }
  MatrixRef<O> queries(const Chunk& c, int64_t b, int64_t h) const {
    return operand(q_, b, h, c.i0, c.rows, p_.f, queries_);
  }
  MatrixRef<O> gradients() const { return {gradient_, p_.dv}; }

  // The rows in which a result is summed: in place, or in `copy` if the result is rounded.
  std::pair<T*, int64_t> rows_to(const Heads<S>& x, int64_t b, int64_t h, int64_t i0, T* copy,
                                 int64_t width) const {
    if constexpr (stores)
      return {copy, width};
    else
      return {x.at(b, h, i0), x.row};
  }
  void store(const T* from, const Heads<S>& to, int64_t b, int64_t h, int64_t i0, int64_t n,
             int64_t width) const {
    if constexpr (stores)
      for (int64_t i = 0; i < n; ++i)
        rows::convert_row(from + i * width, to.at(b, h, i0 + i), width);
  }

  // The lower triangle of products + more (one element per row), as an operand that is valid until
  // the next such operand is made.
  MatrixRef<O> lower(const Chunk& c, const T* more = nullptr) {
    O* to = nullptr;
    if constexpr (rounds)
      to = lower_;
    else
      to = products_;
    for (int64_t i = 0; i < c.rows; ++i)
      lower_row(products_ + i * c.keys, more ? more[i] : T(0), i + 1, c.keys, to + i * c.keys);
    return {to, c.keys};
  }
  // products = G Vᵀ.
  void value_products(const Chunk& c) {
    product(c.rows, c.keys, p_.dv, gradients(), transposed(value_rows_), 0, products_, c.keys);
  }

  void add_keys(const Chunk& c) {
    for (int64_t j = 0; j < c.keys; ++j)
      rows::add_scaled(key_rows_.data + j * key_rows_.ld, T(1), local_ + p_.f * p_.dv, p_.f);
  }
  void add_queries_to_state(const Chunk& c, MatrixRef<O> q, const T* deltas) {
    product(p_.f, p_.dv, c.rows, transposed(q), gradients(), 1, local_, p_.dv);
    for (int64_t i = 0; i < c.rows; ++i)
      rows::add_scaled(q.data + i * q.ld, deltas[i], local_ + p_.f * p_.dv, p_.f);
  }

  const LinearAttentionProblem& p_;
  const Heads<S> q_, k_, v_;
  const uint8_t* padding_;
  const T* before_ = nullptr;
  Tensor sums_memory_, operand_memory_;
  T *rows_, *more_rows_, *more_products_, *products_, *local_, *z_, *state_;
  O *gradient_, *lower_, *rounded_state_, *queries_, *keys_, *values_;
  MatrixRef<O> key_rows_{}, value_rows_{};
};

}  // namespace
}  // namespace stretto::linear_chunks
