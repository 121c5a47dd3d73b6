// The strips of fused attention on the CPU: what one thread computes with, block of queries by
// block of queries (ops/attention/attention_fused.cpp says what). Internal to ops/.
//
// Inputs and outputs have dtype S; sums, softmax and what is between are T: f32 for bf16. There
// weights and the scores' gradients are rounded where they are operands of products, and results
// once, at the end.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/gemm/gemm.h"
#include "ops/attention/attention_terms.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/rows.h"

namespace stretto::strips {
namespace {

// s += p.
template <class T>
STRETTO_CLONES void add_row(T* s, const T* p, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] += p[j];
}

template <class T>
STRETTO_CLONES void scale_row(T* s, T factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] *= factor;
}

template <class T>
STRETTO_CLONES void hide_padding(T* s, const uint8_t* padding, int64_t n) {
  const T never = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < n; ++j) s[j] = padding[j] ? never : s[j];
}

// The weights of a row are e^(s − shift) · scale. A row without a finite score has weights of 0.
template <class T>
struct RowWeights {
  T shift, scale;
};

template <class T>
STRETTO_CLONES RowWeights<T> softmax_in_place(T* s, int64_t n) {
  const T top = rows::max<T>(n, [&](int64_t j) { return s[j]; });
  const T shift = top == -std::numeric_limits<T>::infinity() ? T(0) : top;
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp(s[j] - shift);
  const T total = rows::sum<T>(n, [&](int64_t j) { return s[j]; });
  const T scale = total == T(0) ? T(0) : T(1) / total;
  for (int64_t j = 0; j < n; ++j) s[j] *= scale;
  return {shift, scale};
}

// The same weights again, to the bit.
template <class T>
STRETTO_CLONES void softmax_again(T* s, int64_t n, RowWeights<T> row) {
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp(s[j] - row.shift) * row.scale;
}

template <class T>
STRETTO_CLONES void drop_row(T* s, const uint32_t* draws, int64_t n, uint32_t below, T scale) {
  for (int64_t j = 0; j < n; ++j) s[j] = (draws[j] >> 8) < below ? T(0) : s[j] * scale;
}

// ds = w ∘ (ds − Σ w ds), the derivative of softmax.
template <class T>
STRETTO_CLONES void softmax_gradient(const T* w, T* ds, int64_t n) {
  const T dot = rows::sum<T>(n, [&](int64_t j) { return w[j] * ds[j]; });
  for (int64_t j = 0; j < n; ++j) ds[j] = w[j] * (ds[j] - dot);
}

template <class S, class T>
STRETTO_CLONES void round_row(S* to, const T* from, T factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) to[j] = convert<S>(from[j] * factor);
}

// Everything that forward and backward have in common.
struct Problem {
  int64_t batch, heads, groups, m, n, d, dv;
  double scale;
  AttentionMask mask;  // its padding u8, contiguous
  double dropout;
  std::optional<RandomKey> dropout_key;
  int64_t first = 0, width = 0;  // relative positions first … first + width − 1 have rows
  uint32_t drop_below = 0;
  double keep_scale = 1;

  int64_t block_rows() const { return n > 4096 ? 16 : n > 1024 ? 32 : 64; }
  int64_t per_group() const { return heads / groups; }
  int64_t position(int64_t i) const { return i + n - m; }
};

// The differentiable operands, in the order in which the tape has them: position, rows and lag_bias
// may be undefined. Also their gradients.
struct Operands {
  Tensor q, k, v;
  Tensor position;        // [B, H, M, D]
  Tensor rows, lag_bias;  // [H or 1, width, D] and [H or 1, width]; f32 where the others are bf16

  Tensors list() const { return {q, k, v, position, rows, lag_bias}; }
  static Operands of(const Tensors& x) { return {x[0], x[1], x[2], x[3], x[4], x[5]}; }
  // Off the tape, rows contiguous; `rows` as [1, H or 1, width, D] in q's dtype, so that all look
  // alike.
  Operands for_kernels() const {
    return {rows_contiguous(q),
            rows_contiguous(k),
            rows_contiguous(v),
            rows_contiguous(position),
            rows.defined() ? rows_contiguous(rows.detach().to(q.dtype()).unsqueeze(0)) : Tensor(),
            lag_bias.defined() ? lag_bias.detach().contiguous() : Tensor()};
  }
};

// The strip of one block of queries of a head.
struct Strip {
  int64_t b, h;
  int64_t i0, rows;  // queries
  int64_t j0, keys;  // keys that any of them sees
  int64_t band() const { return keys + rows - 1; }
};

Strip strip_of(const Problem& p, int64_t b, int64_t h, int64_t i0) {
  const int64_t rows = std::min(p.block_rows(), p.m - i0);
  const KeyRange low = visible_keys(p.position(i0), p.n, p.mask);
  const KeyRange high = visible_keys(p.position(i0 + rows - 1), p.n, p.mask);
  return {b, h, i0, rows, low.begin, std::max<int64_t>(0, high.end - low.begin)};
}

// f(strip) for each block of queries of a head.
template <class F>
void each_strip(const Problem& p, int64_t b, int64_t h, F&& f) {
  for (int64_t i0 = 0; i0 < p.m; i0 += p.block_rows()) f(strip_of(p, b, h, i0));
}

// A result [B, H, L, D] of dtype S, the rows of one head at a time in T: where they are, or a copy.
template <class S>
class HeadRows {
  using T = compute_t<S>;

 public:
  explicit HeadRows(const Tensor& x) : there_(heads_of<S>(x)) {
    if (!x.defined() || std::is_same_v<S, T>) return;
    length_ = x.size(2);
    width_ = x.size(3);
    copy_ = empty({length_, width_}, {.dtype = dtype_of<T>(), .device = cpu});
  }

  Heads<T> rows() const {
    if constexpr (std::is_same_v<S, T>)
      return there_;
    else
      return there_ ? Heads<T>{copy_.data<T>(), 0, 0, std::max<int64_t>(width_, 1)} : Heads<T>{};
  }
  void store(int64_t b, int64_t h) const {
    if constexpr (!std::is_same_v<S, T>)
      for (int64_t i = 0; there_ && i < length_; ++i)
        round_row(there_.at(b, h, i), copy_.data<T>() + i * width_, T(1), width_);
  }
  // A copy's rows are zeros again.
  void clear() const {
    if (copy_.defined()) copy_.fill_(0);
  }

 private:
  Heads<S> there_;
  int64_t length_ = 0, width_ = 0;
  Tensor copy_;
};

// What one thread computes with.
template <class S>
class Worker {
  using T = compute_t<S>;

 public:
  Worker(const Problem& p, const Operands& x)
      : p_(p),
        q_(heads_of<S>(x.q)),
        k_(heads_of<S>(x.k)),
        v_(heads_of<S>(x.v)),
        position_(x.position.defined() ? heads_of<S>(x.position) : q_),
        rows_(heads_of<S>(x.rows)),
        lag_bias_(x.lag_bias.defined() ? x.lag_bias.data<T>() : nullptr),
        shared_rows_(x.rows.defined() && x.rows.size(1) == 1),
        shared_bias_(x.lag_bias.defined() && x.lag_bias.size(0) == 1),
        padding_(p.mask.key_padding.defined() ? p.mask.key_padding.data<uint8_t>() : nullptr) {
    int64_t most_keys = 0;
    each_strip(p, 0, 0, [&](const Strip& s) { most_keys = std::max(most_keys, s.keys); });
    const int64_t rows = std::min(p.block_rows(), p.m);
    const TensorOptions options{.dtype = dtype_of<T>(), .device = cpu};
    weights_ = empty({rows, most_keys}, options);
    gradient_ = empty({rows, most_keys}, options);
    band_ = empty({rows, std::max<int64_t>(0, most_keys + rows - 1)}, options);
    if (!std::is_same_v<S, T>)
      rounded_ = empty(band_.shape(), {.dtype = dtype_of<S>(), .device = cpu});
    if (p.dropout > 0) draws_.resize(size_t(most_keys + 8));
  }

  // Scores of a strip, before softmax, for the keys each row sees.
  void scores(const Strip& s) {
    gemm(s.rows, s.keys, p_.d, product_scale(), queries(q_, s), keys(k_, s, true), T(0), weights(),
         s.keys);
    if (rows_) {
      const Valid v = valid_band(s);
      clear_band(s, v);
      gemm(s.rows, v.count, p_.d, product_scale(), queries(position_, s), table(s, v, true), T(0),
           band() + v.column, s.band());
    }
    const T* lag_bias = lag_bias_ ? lag_bias_ + (shared_bias_ ? 0 : s.h) * p_.width : nullptr;
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      const int64_t n = r.end - r.begin;
      T* row = weights() + i * s.keys + r.begin;
      if (rows_) add_row(row, band() + i * s.band() + s.rows - 1 - i + r.begin, n);
      if (!scaled_products) scale_row(row, T(p_.scale), n);
      if (lag_bias) add_row(row, lag_bias + s.j0 + r.begin - p_.position(s.i0 + i) - p_.first, n);
      if (padding_) hide_padding(row, padding_ + s.b * p_.n + s.j0 + r.begin, n);
    }
  }

  // From scores to weights.
  void weigh(const Strip& s, RowWeights<T>* softmax) {
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      softmax[i] = softmax_in_place(weights() + i * s.keys + r.begin, r.end - r.begin);
      clear_unseen(s, i, weights());
      if (p_.dropout > 0) drop(s, i, weights());
    }
  }

  // The strip's part of the output.
  void weigh_values(const Strip& s, const Heads<T>& out) {
    gemm(s.rows, p_.dv, s.keys, T(1), rounded(weights(), s.keys, s.keys, s.rows), keys(v_, s), T(0),
         out.at(s.b, s.h, s.i0), out.row);
  }

  // From scores to weights, and to the scores' gradient.
  void differentiate(const Strip& s, const RowWeights<T>* softmax, const Heads<S>& grad) {
    T *w = weights(), *ds = gradient();
    gemm(s.rows, s.keys, p_.dv, T(1), queries(grad, s), keys(v_, s, true), T(0), ds, s.keys);
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      const int64_t at = i * s.keys + r.begin, n = r.end - r.begin;
      softmax_again(w + at, n, softmax[i]);
      if (p_.dropout > 0) drop(s, i, ds);
      softmax_gradient(w + at, ds + at, n);
      clear_unseen(s, i, w);
      clear_unseen(s, i, ds);
      if (p_.dropout > 0) drop(s, i, w);
    }
  }

  // What a strip gives to the gradients of q, k and v; that of q is new, as nothing came before.
  void add_gradients(const Strip& s, const Heads<S>& grad, const Heads<T>& dq, const Heads<T>& dk,
                     const Heads<T>& dv) {
    const int64_t kh = key_head(s);
    const auto transposed = [](MatrixRef<S> x) { return MatrixRef<S>{x.data, x.ld, true}; };
    const MatrixRef<S> w = rounded(weights(), s.keys, s.keys, s.rows);
    gemm(s.keys, p_.dv, s.rows, T(1), transposed(w), queries(grad, s), T(1), dv.at(s.b, kh, s.j0),
         dv.row);
    const MatrixRef<S> ds = rounded(gradient(), s.keys, s.keys, s.rows, T(p_.scale));
    gemm(s.rows, p_.d, s.keys, product_scale(), ds, keys(k_, s), T(0), dq.at(s.b, s.h, s.i0),
         dq.row);
    gemm(s.keys, p_.d, s.rows, product_scale(), transposed(ds), queries(q_, s), T(1),
         dk.at(s.b, kh, s.j0), dk.row);
  }

  // The same for the position query, times `keep` what is there, and for the tables.
  void add_table_gradients(const Strip& s, T keep, const Heads<T>& dposition, const Heads<T>& drows,
                           T* dlag_bias) {
    shear_gradient(s);
    const Valid v = valid_band(s);
    const T* sheared = band() + v.column;
    if (rows_) {
      const MatrixRef<S> ds = rounded(sheared, s.band(), v.count, s.rows, T(p_.scale));
      gemm(s.rows, p_.d, v.count, product_scale(), ds, table(s, v), keep,
           dposition.at(s.b, s.h, s.i0), dposition.row);
      gemm(v.count, p_.d, s.rows, product_scale(), {ds.data, ds.ld, true}, queries(position_, s),
           T(1), drows.at(s.b, s.h, v.row), drows.row);
    }
    if (!dlag_bias) return;
    T* to = dlag_bias + (s.b * p_.heads + s.h) * p_.width + v.row;
    for (int64_t i = 0; i < s.rows; ++i) add_row(to, sheared + i * s.band(), v.count);
  }

 private:
  T* weights() { return weights_.template data<T>(); }
  T* gradient() { return gradient_.template data<T>(); }
  T* band() { return band_.template data<T>(); }

  // Products of bf16 take no factor: what is rounded has it already.
  static constexpr bool scaled_products = std::is_same_v<S, T>;
  T product_scale() const { return scaled_products ? T(p_.scale) : T(1); }

  // A strip as an operand, until the next one; in bf16 times `factor`.
  MatrixRef<S> rounded(const T* strip, int64_t ld, int64_t columns, int64_t rows,
                       [[maybe_unused]] T factor = T(1)) {
    if constexpr (scaled_products) {
      return {strip, ld};
    } else {
      S* const to = rounded_.template data<S>();
      for (int64_t i = 0; i < rows; ++i)
        round_row(to + i * columns, strip + i * ld, factor, columns);
      return {to, std::max<int64_t>(columns, 1)};
    }
  }

  int64_t key_head(const Strip& s) const { return s.h / p_.per_group(); }
  // Rows of the strip's queries, and of its keys.
  static MatrixRef<S> queries(const Heads<S>& x, const Strip& s) {
    return {x.at(s.b, s.h, s.i0), x.row};
  }
  MatrixRef<S> keys(const Heads<S>& x, const Strip& s, bool transposed = false) const {
    return {x.at(s.b, key_head(s), s.j0), x.row, transposed};
  }

  // The keys that row i of the strip sees, counted from the strip's first key.
  KeyRange visible(const Strip& s, int64_t i) const {
    const KeyRange r = visible_keys(p_.position(s.i0 + i), p_.n, p_.mask);
    return {r.begin - s.j0, std::max(r.begin, r.end) - s.j0};
  }

  // Zeroes what row i does not see.
  void clear_unseen(const Strip& s, int64_t i, T* strip) const {
    const KeyRange r = visible(s, i);
    T* row = strip + i * s.keys;
    std::fill(row, row + r.begin, T(0));
    std::fill(row + r.end, row + s.keys, T(0));
  }

  // Drops weights of row i, or their gradients: the same draws both times.
  void drop(const Strip& s, int64_t i, T* strip) {
    const KeyRange r = visible(s, i);
    const uint64_t first =
        (uint64_t(s.b * p_.heads + s.h) * uint64_t(p_.m) + uint64_t(s.i0 + i)) * uint64_t(p_.n) +
        uint64_t(s.j0 + r.begin);
    const int64_t n = r.end - r.begin, skip = int64_t(first % 4);
    philox_blocks(*p_.dropout_key, first / 4, (n + skip + 3) / 4, draws_.data());
    drop_row(strip + i * s.keys + r.begin, draws_.data() + skip, n, p_.drop_below,
             T(p_.keep_scale));
  }

  // Columns of the band that have a row in the table; column c is relative position
  // (j0 + c) − position(i0 + rows − 1).
  struct Valid {
    int64_t column, row, count;
  };
  Valid valid_band(const Strip& s) const {
    const int64_t row0 = s.j0 - p_.position(s.i0 + s.rows - 1) - p_.first;
    const int64_t begin = std::clamp<int64_t>(-row0, 0, s.band());
    const int64_t end = std::clamp<int64_t>(p_.width - row0, begin, s.band());
    return {begin, row0 + begin, end - begin};
  }

  MatrixRef<S> table(const Strip& s, const Valid& v, bool transposed = false) const {
    return {rows_.at(0, shared_rows_ ? 0 : s.h, v.row), rows_.row, transposed};
  }

  void clear_band(const Strip& s, const Valid& v) {
    if (v.column == 0 && v.count == s.band()) return;
    for (int64_t i = 0; i < s.rows; ++i) {
      T* row = band() + i * s.band();
      std::fill(row, row + v.column, T(0));
      std::fill(row + v.column + v.count, row + s.band(), T(0));
    }
  }

  // The strip's gradient, each row moved to its relative positions.
  void shear_gradient(const Strip& s) {
    for (int64_t i = 0; i < s.rows; ++i) {
      T* row = band() + i * s.band();
      const int64_t shift = s.rows - 1 - i;
      std::fill(row, row + shift, T(0));
      std::copy_n(gradient() + i * s.keys, s.keys, row + shift);
      std::fill(row + shift + s.keys, row + s.band(), T(0));
    }
  }

  const Problem& p_;
  const Heads<S> q_, k_, v_, position_, rows_;
  const T* lag_bias_;
  const bool shared_rows_, shared_bias_;
  const uint8_t* padding_;
  Tensor weights_, gradient_, band_, rounded_;
  std::vector<uint32_t> draws_;
};

}  // namespace
}  // namespace stretto::strips
