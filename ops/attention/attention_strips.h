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
#include <type_traits>
#include <vector>

#include "../../core/gemm/gemm.h"
#include "../../core/gemm/packed.h"
#include "../create.h"
#include "../loops.h"
#include "attention_problem.h"
#include "attention_rows.h"
#include "attention_score_terms.h"

namespace stretto::strips {
namespace {

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

// Destinations of the gradients of the tables, separate for each batch entry and head.
template <class T>
struct TableGradients {
  Heads<T> rows, value_rows;
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
        keys_(p, p.x.options.relative_keys, p.dp),
        values_(p, p.x.options.relative_values, p.dv),
        terms_(p, p.x.options) {
    if (const Tensor& sinks = p.x.options.sinks; sinks.defined()) sinks_ = sinks.data<T>();
    int64_t most_keys = p.mask.is_range() ? 0 : p.n;
    if (p.mask.is_range())
      each_strip(p, 0, 0, [&](const Strip& s) { most_keys = std::max(most_keys, s.width); });
    const int64_t rows = std::min(p.block_rows(), p.m);
    const int64_t most_band = std::max<int64_t>(0, most_keys + rows - 1);
    const int64_t band = std::min(std::max(keys_.count, values_.count), most_band);
    const TensorOptions options{.dtype = dtype_of<T>(), .device = cpu};
    weights_ = empty({rows, most_keys}, options);
    gradient_ = empty({rows, most_keys}, options);
    if (p.x.options.soft_cap > 0) slopes_ = empty({rows, most_keys}, options);
    band_ = empty({rows, band}, options);
    if (!std::is_same_v<S, T>)
      rounded_ = empty({rows, std::max(most_keys, band)}, {.dtype = dtype_of<S>(), .device = cpu});
    if (p.x.options.dropout > 0) draws_.resize(size_t(most_keys + 8));
  }

  // Computes the scores of a strip, before softmax, for the visible keys of each row; for the
  // backward pass also the slopes of the soft cap.
  void scores(const Strip& s, bool for_backward) {
    const T cap = T(p_.x.options.soft_cap);
    for (const KeyRun& run : s.runs) {
      T* const columns = weights() + run.column;
      k_transposed_.of(s.b, key_head(s))
          .from(0, run.j0)
          .gemm(s.rows, run.keys, p_.d, product_scale(), queries(q_, s), T(0), columns, s.width);
      const Band band = multiply_band(s, run, queries(position_, s), keys_, p_.dp, product_scale());
      for (int64_t i = 0; i < s.rows; ++i) {
        const KeyRange r = visible(s, run, i);
        const int64_t n = r.end - r.begin, j = run.j0 + r.begin;
        T* const row = columns + i * s.width + r.begin;
        if (keys_) add_band(s, run, i, band, keys_.clip, columns);
        if (!scaled_products) rows::scale_row(row, T(p_.scale), row, n);
        terms_.add_to(row, {s.b, s.h, s.i0 + i, j}, n);
        if (cap > 0 && for_backward)
          cap_row_and_slopes(row, slopes_.template data<T>() + (row - weights()), cap, n);
        else if (cap > 0)
          cap_row(row, cap, n);
        if (p_.mask.is_range())
          p_.mask.hide(row, s.b, s.h, s.i0 + i, {j, j + n});
        else
          p_.mask.hide(columns + i * s.width, s.b, s.h, s.i0 + i, {run.j0, run.j0 + run.keys});
      }
    }
  }

  // Replaces scores by weights.
  void weigh(const Strip& s, RowWeights<T>* softmax) {
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = row_range(s, i);
      softmax[i] = softmax_in_place(weights() + i * s.width + r.begin, r.end - r.begin, sink(s));
      clear_unseen(s, i, weights());
      if (p_.x.options.dropout > 0) drop(s, i, weights());
    }
  }

  // Computes the output rows of a strip.
  void weigh_values(const Strip& s, const Heads<T>& out) {
    T* const to = out.at(s.b, s.h, s.i0);
    const MatrixRef<S> w = rounded(weights(), s);
    for (const KeyRun& run : s.runs)
      v_.of(s.b, key_head(s))
          .from(run.j0, 0)
          .gemm(s.rows, p_.dv, run.keys, T(1), w.from(0, run.column), T(run.column > 0 ? 1 : 0), to,
                out.row);
    if (!values_) return;
    for (const KeyRun& run : s.runs) {
      const Band band = band_of(s, run, values_);
      values_.rows.of(0, s.h)
          .from(band.row, 0)
          .gemm(s.rows, p_.dv, band.count, T(1), sheared(s, run, weights(), band, values_.clip),
                T(1), to, out.row);
    }
  }

  // Replaces scores by weights and computes the gradient of the scores. `of_sums` is the incoming
  // gradient of the lse of each row; null if there is none. The derivative of the lse with respect
  // to the scores are the weights. Adds to the gradient of the head's sink unless `of_sink` is
  // null.
  void differentiate(const Strip& s, const RowWeights<T>* softmax, const Heads<S>& grad,
                     const T* of_sums, T* of_sink) {
    T *w = weights(), *ds = gradient();
    for (const KeyRun& run : s.runs) {
      T* const columns = ds + run.column;
      v_transposed_.of(s.b, key_head(s))
          .from(0, run.j0)
          .gemm(s.rows, run.keys, p_.dv, T(1), queries(grad, s), T(0), columns, s.width);
      const Band band = multiply_band(s, run, queries(grad, s), values_, p_.dv, T(1));
      for (int64_t i = 0; values_ && i < s.rows; ++i)
        add_band(s, run, i, band, values_.clip, columns);
    }
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = row_range(s, i);
      const int64_t at = i * s.width + r.begin, n = r.end - r.begin;
      softmax_again(w + at, n, softmax[i]);
      if (p_.x.options.dropout > 0) drop(s, i, ds);
      // The gradient of a hidden key's weight may be infinite or, beside the row's keys, undefined.
      if (!p_.mask.is_range()) clear_unweighted(ds + at, w + at, n);
      const T dot = softmax_gradient(w + at, ds + at, n);
      if (of_sink && softmax[i].scale > 0)
        *of_sink -= math::exp_negative(*sink(s) - softmax[i].shift) * softmax[i].scale * dot;
      if (of_sums) rows::add_scaled(w + at, of_sums[i], ds + at, n);
      if (slopes_.defined()) multiply_by_slopes(s, i, ds);
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
    for (const KeyRun& run : s.runs)
      gemm(run.keys, p_.dv, s.rows, T(1), transposed(w.from(0, run.column)), queries(grad, s), T(1),
           dv.at(s.b, kh, run.j0), dv.row);
    const MatrixRef<S> ds = rounded(gradient(), s, T(p_.scale));
    for (const KeyRun& run : s.runs) {
      k_.of(s.b, kh).from(run.j0, 0).gemm(s.rows, p_.d, run.keys, product_scale(),
                                          ds.from(0, run.column), T(run.column > 0 ? 1 : 0),
                                          dq.at(s.b, s.h, s.i0), dq.row);
      gemm(run.keys, p_.d, s.rows, product_scale(), transposed(ds.from(0, run.column)),
           queries(q_, s), T(1), dk.at(s.b, kh, run.j0), dk.row);
    }
  }

  // The same for the tables and relative_query. `dposition` is first multiplied by `keep`.
  void add_table_gradients(const Strip& s, const Heads<S>& grad, T keep, const Heads<T>& dposition,
                           const TableGradients<T>& to) {
    for (const KeyRun& run : s.runs) {
      if (values_) {
        const Band band = band_of(s, run, values_);
        gemm(band.count, p_.dv, s.rows, T(1),
             transposed(sheared(s, run, weights(), band, values_.clip)), queries(grad, s), T(1),
             to.value_rows.at(s.b, s.h, band.row), to.value_rows.row);
      }
      if (keys_) {
        const Band band = band_of(s, run, keys_);
        const MatrixRef<S> ds = sheared(s, run, gradient(), band, keys_.clip, T(p_.scale));
        keys_.rows.of(0, s.h)
            .from(band.row, 0)
            .gemm(s.rows, p_.dp, band.count, product_scale(), ds, run.column > 0 ? T(1) : keep,
                  dposition.at(s.b, s.h, s.i0), dposition.row);
        gemm(band.count, p_.dp, s.rows, product_scale(), transposed(ds), queries(position_, s),
             T(1), to.rows.at(s.b, s.h, band.row), to.rows.row);
      }
    }
  }

  // The same for the terms that are added to products.
  void add_term_gradients(const Strip& s, const ScoreTerms<T>& to) {
    for (const KeyRun& run : s.runs)
      for (int64_t i = 0; i < s.rows; ++i) {
        const KeyRange r = visible(s, run, i);
        to.add_gradients(gradient() + run.column + i * s.width + r.begin,
                         {s.b, s.h, s.i0 + i, run.j0 + r.begin}, r.end - r.begin);
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
    const int64_t ld = std::max<int64_t>(s.width, 1);
    if constexpr (scaled_products) {
      return {strip, ld};
    } else {
      S* const to = rounded_.template data<S>();
      round_row(to, strip, factor, s.rows * s.width);
      return {to, ld};
    }
  }

  int64_t key_head(const Strip& s) const { return s.h / p_.per_group(); }
  // The rows of x for the strip's queries.
  static MatrixRef<S> queries(const Heads<S>& x, const Strip& s) {
    return {x.at(s.b, s.h, s.i0), x.row};
  }

  // The keys of a run that row i may see, relative to the run's first key.
  KeyRange visible(const Strip& s, const KeyRun& run, int64_t i) const {
    const KeyRange r = p_.mask.range_of(s.i0 + i);
    const auto in_run = [&](int64_t j) { return std::clamp<int64_t>(j - run.j0, 0, run.keys); };
    return {in_run(r.begin), std::max(in_run(r.begin), in_run(r.end))};
  }

  // The columns of row i that enter its softmax. Other columns are undefined.
  KeyRange row_range(const Strip& s, int64_t i) const {
    return p_.mask.is_range() ? visible(s, s.runs[0], i) : KeyRange{0, s.width};
  }

  const T* sink(const Strip& s) const { return sinks_ ? sinks_ + s.h : nullptr; }

  // Zeroes the columns of row i that do not enter its softmax.
  void clear_unseen(const Strip& s, int64_t i, T* strip) const {
    const KeyRange r = row_range(s, i);
    T* row = strip + i * s.width;
    std::fill(row, row + r.begin, T(0));
    std::fill(row + r.end, row + s.width, T(0));
  }

  // Multiplies the gradients of the scores of row i by the slopes of the soft cap. Only the visible
  // keys of a run have slopes; the gradients of the other keys are 0 or do not enter the softmax.
  void multiply_by_slopes(const Strip& s, int64_t i, T* ds) {
    for (const KeyRun& run : s.runs) {
      const KeyRange r = visible(s, run, i);
      const int64_t at = run.column + i * s.width + r.begin;
      multiply_row(ds + at, slopes_.template data<T>() + at, r.end - r.begin);
    }
  }

  // Applies dropout to the weights of row i or to their gradients, with the same mask.
  void drop(const Strip& s, int64_t i, T* strip) {
    for (const KeyRun& run : s.runs) {
      const KeyRange r = visible(s, run, i);
      const uint64_t first =
          (uint64_t(s.b * p_.heads + s.h) * uint64_t(p_.m) + uint64_t(s.i0 + i)) * uint64_t(p_.n) +
          uint64_t(run.j0 + r.begin);
      const int64_t n = r.end - r.begin, skip = int64_t(first % 4);
      philox_blocks(p_.dropping.key, first / 4, (n + skip + 3) / 4, draws_.data());
      T* const row = strip + run.column + i * s.width + r.begin;
      drop_run(row, draws_.data() + skip, row, n, p_.dropping.below, T(p_.dropping.factor));
    }
  }

  // The rows of a table that a run needs. It has keys + rows − 1 relative positions, one
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

  Band band_of(const Strip& s, const KeyRun& run, const Table& table) const {
    const int64_t all = run.keys + s.rows - 1, least = table.clip && all > 0 ? 1 : 0;
    const int64_t row0 = run.j0 - p_.position(s.i0 + s.rows - 1) + table.zero_row;
    const int64_t begin = std::clamp<int64_t>(-row0, 0, all - least);
    const int64_t end = std::clamp<int64_t>(table.count - row0, begin + least, all);
    return {begin, std::clamp<int64_t>(row0 + begin, 0, table.count - 1), end - begin};
  }

  // Multiplies the strip's queries (`left`) by the table rows of a run's band, into band().
  Band multiply_band(const Strip& s, const KeyRun& run, MatrixRef<S> left, Table& table,
                     int64_t size, T factor) {
    if (!table) return {};
    const Band b = band_of(s, run, table);
    table.transposed.of(0, s.h).from(0, b.row).gemm(s.rows, b.count, size, factor, left, T(0),
                                                    band(), b.count);
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

  // Adds row i of the band to row i of a run's columns.
  void add_band(const Strip& s, const KeyRun& run, int64_t i, const Band& b, bool clip,
                T* columns) {
    const KeyRange r = visible(s, run, i);
    const OwnKeys m = own_keys(s, i, b, r);
    const T* from = band() + i * b.count;
    T* to = columns + i * s.width;
    add_row(to + m.begin, from + m.column, m.end - m.begin);
    if (!clip) return;
    if (m.begin > r.begin) add_constant(to + r.begin, from[0], m.begin - r.begin);
    if (m.end < r.end) add_constant(to + m.end, from[b.count - 1], r.end - m.end);
  }

  // Returns a run's columns of a strip, indexed by table row, as an operand that is valid until
  // the next such operand is made. Each row is shifted to its relative positions. If the table
  // clips, keys out of range are added to the outermost columns. In bf16 the strip is multiplied
  // by `factor`.
  MatrixRef<S> sheared(const Strip& s, const KeyRun& run, const T* strip, const Band& b, bool clip,
                       [[maybe_unused]] T factor = T(1)) {
    S* all;
    if constexpr (scaled_products)
      all = band(), factor = T(1);
    else
      all = rounded_.template data<S>();
    for (int64_t i = 0; i < s.rows; ++i) {
      const OwnKeys m = own_keys(s, i, b, {0, run.keys});
      const T* from = strip + run.column + i * s.width;
      S* to = all + i * b.count;
      const int64_t own = m.end - m.begin;
      std::fill(to, to + m.column, S());
      round_row(to + m.column, from + m.begin, factor, own);
      std::fill(to + m.column + own, to + b.count, S());
      if (!clip || own == run.keys) continue;
      const T before = sum_row(from, m.begin), after = sum_row(from + m.end, run.keys - m.end);
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
  const ScoreTerms<S> terms_;
  const T* sinks_ = nullptr;
  Tensor weights_, gradient_, slopes_, band_, rounded_;
  std::vector<uint32_t> draws_;
};

}  // namespace
}  // namespace stretto::strips
