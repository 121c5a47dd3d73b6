// The strips of fused attention on the CPU: the state and the steps of one thread, which processes
// one block of queries after the other (the algorithm is in ops/attention/attention_fused.cpp).
// Internal to ops/.
//
// Inputs and outputs have dtype S; sums, softmax and intermediate values have dtype T, which is f32
// for bf16. In bf16, weights and gradients of scores are rounded where they are operands of
// products; results are rounded once, at the end.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "../../core/gemm/gemm.h"
#include "../../core/gemm/packed.h"
#include "../create.h"
#include "../loops.h"
#include "../rows.h"
#include "attention_problem.h"

namespace stretto::strips {
namespace {

// s += p.
template <class T>
STRETTO_CLONES void add_row(T* s, const T* p, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] += p[j];
}

template <class T>
STRETTO_CLONES void add_constant(T* s, T c, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] += c;
}

// s += bias, whose elements are `stride` apart.
template <class T, class S>
STRETTO_CLONES void add_bias(T* s, const S* bias, int64_t stride, int64_t n) {
  if (stride == 1)
    for (int64_t j = 0; j < n; ++j) s[j] += convert<T>(bias[j]);
  else
    for (int64_t j = 0; j < n; ++j) s[j] += convert<T>(bias[j * stride]);
}

template <class T>
STRETTO_CLONES T sum_row(const T* s, int64_t n) {
  return rows::sum<T>(n, [&](int64_t j) { return s[j]; });
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

// The weights of a row are e^(s − shift) · scale; a row without a finite score has weights 0.
template <class T>
struct RowWeights {
  T shift, scale;
};

template <class T>
STRETTO_CLONES RowWeights<T> softmax_in_place(T* s, int64_t n) {
  const T shift = rows::softmax_shift<T>(n, [&](int64_t j) { return s[j]; });
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp_negative(s[j] - shift);
  const T scale = rows::softmax_scale(rows::sum<T>(n, [&](int64_t j) { return s[j]; }));
  for (int64_t j = 0; j < n; ++j) s[j] *= scale;
  return {shift, scale};
}

// Recomputes the weights, bit-identical to softmax_in_place.
template <class T>
STRETTO_CLONES void softmax_again(T* s, int64_t n, RowWeights<T> row) {
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp_negative(s[j] - row.shift) * row.scale;
}

// The gradient of softmax: ds = w ∘ (ds − Σ w ds).
template <class T>
STRETTO_CLONES void softmax_gradient(const T* w, T* ds, int64_t n) {
  const T dot = rows::sum<T>(n, [&](int64_t j) { return w[j] * ds[j]; });
  for (int64_t j = 0; j < n; ++j) ds[j] = w[j] * (ds[j] - dot);
}

template <class T>
STRETTO_CLONES void add_scaled(T* s, const T* x, T factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] += factor * x[j];
}

// The rows of a head or of a table of the head, [rows, width] or transposed, as an operand of the
// products of all strips of the head. Packed once if there are several strips.
template <class S>
class HeadOperand {
 public:
  HeadOperand(const AttentionProblem& p, const Heads<S>& x, int64_t rows, int64_t width,
              bool transposed)
      : x_(x),
        k_(transposed ? width : rows),
        n_(transposed ? rows : width),
        transposed_(transposed) {
    if (p.m > p.block_rows()) bytes_ = PackedB<S>::bytes(k_, n_, transposed);
  }
  const PackedB<S>& of(int64_t b, int64_t h) {
    const S* const data = x_.at(b, h);
    if (data == packed_) return operand_;
    if (bytes_ && !memory_.defined()) memory_ = empty({bytes_}, {.dtype = u8, .device = cpu});
    operand_.pack(k_, n_, {data, x_.row, transposed_}, bytes_ ? memory_.raw_data() : nullptr);
    packed_ = data;
    return operand_;
  }

 private:
  const Heads<S> x_;
  const int64_t k_, n_;
  const bool transposed_;
  int64_t bytes_ = 0;
  Tensor memory_;
  PackedB<S> operand_;
  const S* packed_ = nullptr;
};

// The state of one thread.
template <class S>
class AttentionWorker {
  using T = compute_t<S>;

 public:
  explicit AttentionWorker(const AttentionProblem& p)
      : p_(p),
        q_(heads_of<S>(p.x.q)),
        k_(p, heads_of<S>(p.x.k), p.n, p.d, false),
        k_transposed_(p, heads_of<S>(p.x.k), p.n, p.d, true),
        v_(p, heads_of<S>(p.x.v), p.n, p.dv, false),
        v_transposed_(p, heads_of<S>(p.x.v), p.n, p.dv, true),
        position_(p.x.options.relative_query.defined() ? heads_of<S>(p.x.options.relative_query)
                                                       : q_),
        keys_(p, p.x.options.relative_keys, p.d),
        values_(p, p.x.options.relative_values, p.dv),
        bias_(p, p.x.options.bias) {
    if (const Tensor& rows = p.x.options.relative_bias.rows; rows.defined()) {
      relative_bias_ = rows.data<T>();
      relative_bias_head_ = rows.size(0) > 1 ? p.range.count() : 0;
    }
    if (const Tensor& padding = p.mask().key_padding; padding.defined())
      padding_ = padding.data<uint8_t>();
    int64_t most_keys = 0;
    each_strip(p, 0, 0, [&](const Strip& s) { most_keys = std::max(most_keys, s.keys); });
    const int64_t rows = std::min(p.block_rows(), p.m);
    const int64_t most_band = std::max<int64_t>(0, most_keys + rows - 1);
    const int64_t band = std::min(std::max(keys_.count, values_.count), most_band);
    const TensorOptions options{.dtype = dtype_of<T>(), .device = cpu};
    weights_ = empty({rows, most_keys}, options);
    gradient_ = empty({rows, most_keys}, options);
    band_ = empty({rows, band}, options);
    if (!std::is_same_v<S, T>)
      rounded_ = empty({rows, std::max(most_keys, band)}, {.dtype = dtype_of<S>(), .device = cpu});
    if (p.x.options.dropout > 0) draws_.resize(size_t(most_keys + 8));
  }

  // Computes the scores of a strip, before softmax, for the visible keys of each row.
  void scores(const Strip& s) {
    k_transposed_.of(s.b, key_head(s))
        .gemm(s.rows, s.keys, p_.d, product_scale(), queries(q_, s), 0, s.j0, T(0), weights(),
              s.keys);
    const Band band = multiply_band(s, queries(position_, s), keys_, p_.d, product_scale());
    const T* relative_bias = relative_bias_ ? relative_bias_ + s.h * relative_bias_head_ : nullptr;
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      const int64_t n = r.end - r.begin;
      T* row = weights() + i * s.keys + r.begin;
      if (keys_) add_band(s, i, band, keys_.clip, weights());
      if (!scaled_products) scale_row(row, T(p_.scale), n);
      if (relative_bias)
        add_row(row, relative_bias + s.j0 + r.begin - p_.position(s.i0 + i) + p_.range.past, n);
      if (bias_) add_bias(row, bias_.at(s.b, s.h, s.i0 + i, s.j0 + r.begin), bias_.key, n);
      if (padding_) hide_padding(row, padding_ + s.b * p_.n + s.j0 + r.begin, n);
    }
  }

  // Replaces scores by weights.
  void weigh(const Strip& s, RowWeights<T>* softmax) {
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      softmax[i] = softmax_in_place(weights() + i * s.keys + r.begin, r.end - r.begin);
      clear_unseen(s, i, weights());
      if (p_.x.options.dropout > 0) drop(s, i, weights());
    }
  }

  // Computes the output rows of a strip.
  void weigh_values(const Strip& s, const Heads<T>& out) {
    T* const to = out.at(s.b, s.h, s.i0);
    v_.of(s.b, key_head(s))
        .gemm(s.rows, p_.dv, s.keys, T(1), rounded(weights(), s), s.j0, 0, T(0), to, out.row);
    if (!values_) return;
    const Band band = band_of(s, values_);
    values_.rows.of(0, s.h).gemm(s.rows, p_.dv, band.count, T(1),
                                 sheared(s, weights(), band, values_.clip), band.row, 0, T(1), to,
                                 out.row);
  }

  // Replaces scores by weights and computes the gradient of the scores. `of_sums` is the incoming
  // gradient of the lse of each row; null if there is none. The derivative of the lse with respect
  // to the scores are the weights.
  void differentiate(const Strip& s, const RowWeights<T>* softmax, const Heads<S>& grad,
                     const T* of_sums) {
    T *w = weights(), *ds = gradient();
    v_transposed_.of(s.b, key_head(s))
        .gemm(s.rows, s.keys, p_.dv, T(1), queries(grad, s), 0, s.j0, T(0), ds, s.keys);
    const Band band = multiply_band(s, queries(grad, s), values_, p_.dv, T(1));
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      const int64_t at = i * s.keys + r.begin, n = r.end - r.begin;
      softmax_again(w + at, n, softmax[i]);
      if (values_) add_band(s, i, band, values_.clip, ds);
      if (p_.x.options.dropout > 0) drop(s, i, ds);
      softmax_gradient(w + at, ds + at, n);
      if (of_sums) add_scaled(ds + at, w + at, of_sums[i], n);
      clear_unseen(s, i, w);
      clear_unseen(s, i, ds);
      if (p_.x.options.dropout > 0) drop(s, i, w);
    }
  }

  // Adds a strip's terms to the gradients of k and v, and writes the gradients of the strip's
  // queries, to which no other strip contributes.
  void add_gradients(const Strip& s, const Heads<S>& grad, const Heads<T>& dq, const Heads<T>& dk,
                     const Heads<T>& dv) {
    const int64_t kh = key_head(s);
    const MatrixRef<S> w = rounded(weights(), s);
    gemm(s.keys, p_.dv, s.rows, T(1), transposed(w), queries(grad, s), T(1), dv.at(s.b, kh, s.j0),
         dv.row);
    const MatrixRef<S> ds = rounded(gradient(), s, T(p_.scale));
    k_.of(s.b, kh).gemm(s.rows, p_.d, s.keys, product_scale(), ds, s.j0, 0, T(0),
                        dq.at(s.b, s.h, s.i0), dq.row);
    gemm(s.keys, p_.d, s.rows, product_scale(), transposed(ds), queries(q_, s), T(1),
         dk.at(s.b, kh, s.j0), dk.row);
  }

  // The same for the tables, biases and relative_query. `dposition` is first multiplied by `keep`.
  void add_table_gradients(const Strip& s, const Heads<S>& grad, T keep, const Heads<T>& dposition,
                           const TableGradients<T>& to) {
    if (values_) {
      const Band band = band_of(s, values_);
      gemm(band.count, p_.dv, s.rows, T(1), transposed(sheared(s, weights(), band, values_.clip)),
           queries(grad, s), T(1), to.value_rows.at(s.b, s.h, band.row), to.value_rows.row);
    }
    if (keys_) {
      const Band band = band_of(s, keys_);
      const MatrixRef<S> ds = sheared(s, gradient(), band, keys_.clip, T(p_.scale));
      keys_.rows.of(0, s.h).gemm(s.rows, p_.d, band.count, product_scale(), ds, band.row, 0, keep,
                                 dposition.at(s.b, s.h, s.i0), dposition.row);
      gemm(band.count, p_.d, s.rows, product_scale(), transposed(ds), queries(position_, s), T(1),
           to.rows.at(s.b, s.h, band.row), to.rows.row);
    }
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      const T* ds = gradient() + i * s.keys + r.begin;
      const int64_t n = r.end - r.begin, lag = s.j0 + r.begin - p_.position(s.i0 + i);
      if (to.relative_bias)
        add_row(to.relative_bias + (s.b * p_.heads + s.h) * p_.range.count() + lag + p_.range.past,
                ds, n);
      if (!to.bias) continue;
      T* const bias = to.bias.at(s.b, s.h, s.i0 + i, s.j0 + r.begin);
      if (to.bias.key == 1)
        add_row(bias, ds, n);
      else
        *bias += sum_row(ds, n);
    }
  }

 private:
  T* weights() { return weights_.template data<T>(); }
  T* gradient() { return gradient_.template data<T>(); }
  T* band() { return band_.template data<T>(); }

  // bf16 products have no factor: scores are scaled after the product, gradients of scores before
  // they are rounded.
  static constexpr bool scaled_products = std::is_same_v<S, T>;
  T product_scale() const { return scaled_products ? T(p_.scale) : T(1); }
  static MatrixRef<S> transposed(MatrixRef<S> x) { return {x.data, x.ld, true}; }

  // Returns a strip as an operand of a product, valid until the next such operand is made. In bf16
  // the strip is multiplied by `factor`.
  MatrixRef<S> rounded(const T* strip, const Strip& s, [[maybe_unused]] T factor = T(1)) {
    const int64_t ld = std::max<int64_t>(s.keys, 1);
    if constexpr (scaled_products) {
      return {strip, ld};
    } else {
      S* const to = rounded_.template data<S>();
      round_row(to, strip, factor, s.rows * s.keys);
      return {to, ld};
    }
  }

  int64_t key_head(const Strip& s) const { return s.h / p_.per_group(); }
  // The rows of x for the strip's queries.
  static MatrixRef<S> queries(const Heads<S>& x, const Strip& s) {
    return {x.at(s.b, s.h, s.i0), x.row};
  }

  // The visible keys of row i of the strip, relative to the strip's first key.
  KeyRange visible(const Strip& s, int64_t i) const {
    const KeyRange r = visible_keys(p_.position(s.i0 + i), p_.n, p_.mask());
    return {r.begin - s.j0, std::max(r.begin, r.end) - s.j0};
  }

  // Zeroes the hidden keys of row i.
  void clear_unseen(const Strip& s, int64_t i, T* strip) const {
    const KeyRange r = visible(s, i);
    T* row = strip + i * s.keys;
    std::fill(row, row + r.begin, T(0));
    std::fill(row + r.end, row + s.keys, T(0));
  }

  // Applies dropout to the weights of row i or to their gradients, with the same mask.
  void drop(const Strip& s, int64_t i, T* strip) {
    const KeyRange r = visible(s, i);
    const uint64_t first =
        (uint64_t(s.b * p_.heads + s.h) * uint64_t(p_.m) + uint64_t(s.i0 + i)) * uint64_t(p_.n) +
        uint64_t(s.j0 + r.begin);
    const int64_t n = r.end - r.begin, skip = int64_t(first % 4);
    philox_blocks(p_.dropping.key, first / 4, (n + skip + 3) / 4, draws_.data());
    T* const row = strip + i * s.keys + r.begin;
    drop_run(row, draws_.data() + skip, row, n, p_.dropping.below, T(p_.dropping.factor));
  }

  // The rows of a table that a strip needs. A strip has keys + rows − 1 relative positions, one
  // column for each: the keys of row i have the columns from rows − 1 − i on. Columns `column` …
  // `column` + count − 1 have the table rows from `row` on. The columns before and after them use
  // the outermost rows if the table clips.
  struct Band {
    int64_t column, row, count;
  };
  struct Table {
    const int64_t count, zero_row;
    const bool clip;
    HeadOperand<S> rows, transposed;

    Table(const AttentionProblem& p, const RelativeTable& table, int64_t width)
        : count(table.defined() ? table.rows.size(2) : 0),
          zero_row(table.zero_row),
          clip(table.out_of_range == OutOfRange::clip),
          rows(p, heads_or_one(table.rows), count, width, false),
          transposed(p, heads_or_one(table.rows), count, width, true) {}
    explicit operator bool() const { return count > 0; }
    static Heads<S> heads_or_one(const Tensor& x) {
      Heads<S> heads = heads_of<S>(x);
      if (x.defined() && x.size(1) == 1) heads.head = 0;
      return heads;
    }
  };

  Band band_of(const Strip& s, const Table& table) const {
    const int64_t all = s.keys + s.rows - 1, least = table.clip && all > 0 ? 1 : 0;
    const int64_t row0 = s.j0 - p_.position(s.i0 + s.rows - 1) + table.zero_row;
    const int64_t begin = std::clamp<int64_t>(-row0, 0, all - least);
    const int64_t end = std::clamp<int64_t>(table.count - row0, begin + least, all);
    return {begin, std::clamp<int64_t>(row0 + begin, 0, table.count - 1), end - begin};
  }

  // Multiplies the strip's queries (`left`) by the table rows of its band, into band().
  Band multiply_band(const Strip& s, MatrixRef<S> left, Table& table, int64_t size, T factor) {
    if (!table) return {};
    const Band b = band_of(s, table);
    table.transposed.of(0, s.h).gemm(s.rows, b.count, size, factor, left, 0, b.row, T(0), band(),
                                     b.count);
    return b;
  }

  // The keys begin … end − 1 of row i that have a column in the band, and the column
  // of key `begin`.
  struct OwnKeys {
    int64_t begin, end, column;
  };
  static OwnKeys own_keys(const Strip& s, int64_t i, const Band& b, const KeyRange& r) {
    const int64_t zero = b.column - (s.rows - 1 - i);  // the key of the band's first column
    const int64_t begin = std::clamp(zero, r.begin, r.end);
    const int64_t end = std::clamp(zero + b.count, begin, r.end);
    return {begin, end, std::clamp<int64_t>(begin - zero, 0, b.count)};
  }

  // Adds row i of the band to row i of a strip.
  void add_band(const Strip& s, int64_t i, const Band& b, bool clip, T* strip) {
    const KeyRange r = visible(s, i);
    const OwnKeys m = own_keys(s, i, b, r);
    const T* from = band() + i * b.count;
    T* to = strip + i * s.keys;
    add_row(to + m.begin, from + m.column, m.end - m.begin);
    if (!clip) return;
    if (m.begin > r.begin) add_constant(to + r.begin, from[0], m.begin - r.begin);
    if (m.end < r.end) add_constant(to + m.end, from[b.count - 1], r.end - m.end);
  }

  // Returns the strip with columns indexed by table row, as an operand that is valid until the next
  // such operand is made. Each row is shifted to its relative positions. If the table clips, keys
  // out of range are added to the outermost columns. In bf16 the strip is multiplied by `factor`.
  MatrixRef<S> sheared(const Strip& s, const T* strip, const Band& b, bool clip,
                       [[maybe_unused]] T factor = T(1)) {
    S* all;
    if constexpr (scaled_products)
      all = band(), factor = T(1);
    else
      all = rounded_.template data<S>();
    for (int64_t i = 0; i < s.rows; ++i) {
      const OwnKeys m = own_keys(s, i, b, {0, s.keys});
      const T* from = strip + i * s.keys;
      S* to = all + i * b.count;
      const int64_t own = m.end - m.begin;
      std::fill(to, to + m.column, S());
      round_row(to + m.column, from + m.begin, factor, own);
      std::fill(to + m.column + own, to + b.count, S());
      if (!clip || own == s.keys) continue;
      const T before = sum_row(from, m.begin), after = sum_row(from + m.end, s.keys - m.end);
      const auto add = [&](int64_t column, T out_of_range) {
        const int64_t at = column - m.column;
        if (at >= 0 && at < own) out_of_range += from[m.begin + at];
        to[column] = convert<S>(out_of_range * factor);
      };
      add(0, b.count == 1 ? before + after : before);
      if (b.count > 1) add(b.count - 1, after);
    }
    return {all, std::max<int64_t>(b.count, 1)};
  }

  const AttentionProblem& p_;
  const Heads<S> q_;
  HeadOperand<S> k_, k_transposed_, v_, v_transposed_;
  const Heads<S> position_;
  Table keys_, values_;
  const T* relative_bias_ = nullptr;
  int64_t relative_bias_head_ = 0;
  const ScoreBias<S> bias_;
  const uint8_t* padding_ = nullptr;
  Tensor weights_, gradient_, band_, rounded_;
  std::vector<uint32_t> draws_;
};

}  // namespace
}  // namespace stretto::strips
