// Sizes, operands, strips of queries and results of fused attention on the CPU
// (ops/attention/attention_fused.cpp). Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "../create.h"
#include "../dropout_draws.h"
#include "../loops.h"
#include "../view.h"
#include "attention_terms.h"
#include "block_mask.h"
#include "heads.h"

namespace stretto::strips {
namespace {

template <class S, class T>
STRETTO_CLONES void round_row(S* to, const T* from, T factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) to[j] = convert<S>(from[j] * factor);
}

// The inputs of attention in the layout of the kernels.
struct AttentionProblem {
  // Detached, rows contiguous. The tables relative_keys and relative_values, cut to the relative
  // positions that occur, are [1, H or 1, R, ..] in q's dtype, like the other operands;
  // relative_bias and sinks are contiguous.
  AttentionOperands x;
  int64_t batch, heads, groups, m, n, d, dv;
  int64_t dp;  // P, the width of the position queries
  double scale;
  RelativeRange range;  // relative positions that occur
  Dropping dropping;
  BlockMask mask;

  // `inputs` is a result of with_short_tables(): its tables are cut to the relative positions that
  // occur.
  explicit AttentionProblem(const AttentionOperands& inputs)
      : x(inputs),
        batch(x.q.size(0)),
        heads(x.q.size(1)),
        groups(x.k.size(1)),
        m(x.q.size(2)),
        n(x.k.size(2)),
        d(x.q.size(3)),
        dv(x.v.size(3)),
        dp(x.options.relative_query.defined() ? x.options.relative_query.size(3) : d),
        scale(score_scale(x.q, x.options)),
        range(x.range()),
        dropping(x.options.dropout, x.options.dropout_key.value_or(RandomKey())),
        mask(x.options.mask, {batch, heads, m, n}) {
    AttentionOptions& o = x.options;
    x.for_each_tensor([](Tensor& t) {
      if (t.defined()) t = t.detach();
    });
    for (Tensor* rows : {&x.q, &x.k, &x.v, &o.relative_query}) *rows = rows_contiguous(*rows);
    for (Tensor* rows : {&o.relative_keys.rows, &o.relative_values.rows})
      if (rows->defined()) *rows = rows_contiguous(rows->to(x.q.dtype()).unsqueeze(0));
    for (Tensor* term : {&o.relative_bias.rows, &o.sinks})
      if (term->defined()) *term = term->contiguous();
  }

  int64_t block_rows() const {
    const int64_t keys = mask.longest_segment();
    return keys > 4096 ? 16 : keys > 1024 ? 32 : 64;
  }
  int64_t per_group() const { return heads / groups; }
  int64_t position(int64_t i) const { return i + n - m; }
};

// Keys of a strip that follow each other.
struct KeyRun {
  int64_t j0, keys;  // first key, number of keys
  int64_t column;    // column of the first key in the strip's scores
};

// A strip: one block of queries of a head, and the keys that any of them sees. Its scores
// [rows, width] are computed at once.
struct Strip {
  int64_t b, h;
  int64_t i0, rows;          // queries
  int64_t width;             // keys
  std::vector<KeyRun> runs;  // at least one
};

Strip strip_of(const AttentionProblem& p, int64_t b, int64_t h, int64_t i0) {
  Strip s{b, h, i0, std::min(p.block_rows(), p.m - i0), 0, {}};
  for (const KeyRange& keys : p.mask.ranges(b, h, i0, s.rows)) {
    s.runs.push_back({keys.begin, keys.end - keys.begin, s.width});
    s.width += s.runs.back().keys;
  }
  return s;
}

// f(strip) for each block of queries of a head.
template <class F>
void each_strip(const AttentionProblem& p, int64_t b, int64_t h, F&& f) {
  for (int64_t i0 = 0; i0 < p.m; i0 += p.block_rows()) f(strip_of(p, b, h, i0));
}

// A result [B, H, L, D] of dtype S. The rows of one head at a time are computed in T: in place if S
// is T, else in a copy.
template <class S>
class HeadRows {
  using T = compute_t<S>;

 public:
  explicit HeadRows(const Tensor& x) : result_(heads_of<S>(x)) {
    if (!x.defined()) return;
    length_ = x.size(2);
    width_ = x.size(3);
    if (!std::is_same_v<S, T>)
      copy_ = empty({length_, width_}, {.dtype = dtype_of<T>(), .device = cpu});
  }

  Heads<T> rows() const {
    if constexpr (std::is_same_v<S, T>)
      return result_;
    else
      return result_ ? Heads<T>{copy_.data<T>(), 0, 0, std::max<int64_t>(width_, 1)} : Heads<T>{};
  }
  void store(int64_t b, int64_t h) const {
    if constexpr (!std::is_same_v<S, T>)
      for (int64_t i = 0; result_ && i < length_; ++i)
        round_row(result_.at(b, h, i), copy_.data<T>() + i * width_, T(1), width_);
  }
  void clear(int64_t b, int64_t h) const {
    const Heads<T> to = rows();
    for (int64_t i = 0; i < length_; ++i) std::fill_n(to.at(b, h, i), width_, T(0));
  }

 private:
  Heads<S> result_;
  int64_t length_ = 0, width_ = 0;
  Tensor copy_;
};

}  // namespace
}  // namespace stretto::strips
