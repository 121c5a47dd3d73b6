// Fused attention on the CPU, forward and backward.
//
// For each batch entry and head, queries are taken in blocks of up to 64 rows. Such a block sees a
// contiguous range of keys, so its scores are one strip [rows, keys] that stays in the cache:
//
//     S  = scale · Q Kᵀ                                   one matrix product
//     P  = scale · Qₚ Rᵀ over the rows + keys − 1 relative positions that the strip touches
//     S[i, j] += P[i, j − i + rows − 1]                   the skew is a row read at an offset
//     softmax, dropout, O = S V
//
// Backward computes the strip again from q, k and what softmax subtracted from each row and
// multiplied it with (not log Σ e^S: one number has no room for both where scores are large), so
// nothing of size M × N exists outside the strip. Sums: the gradients of k and v of one (batch, key
// head) have one owner that adds query blocks in order; those of the relative rows are kept per
// (batch, head) and added in order at the end. Results do not depend on the number of threads.
//
// Layout: inputs may have any strides with the last dimension contiguous; outputs and gradients
// are stored [B, M, H, D] and returned as [B, H, M, D] views, so that joining heads is no copy.
#include "ops/attention/attention_fused.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "core/gemm.h"
#include "ops/attention/attention_composed.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

// ---------------------------------------------------------------------------- row kernels

// s += p.
template <class T>
STRETTO_CLONES void add_row(T* s, const T* p, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] += p[j];
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

// ---------------------------------------------------------------------------- one call

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

Problem problem_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  Problem p{.batch = q.size(0),
            .heads = q.size(1),
            .groups = k.size(1),
            .m = q.size(2),
            .n = k.size(2),
            .d = q.size(3),
            .dv = v.size(3),
            .scale = score_scale(q, o),
            .mask = o.mask,
            .dropout = o.dropout,
            .dropout_key = o.dropout_key};
  if (o.mask.key_padding.defined()) p.mask.key_padding = o.mask.key_padding.to(u8).contiguous();
  p.drop_below = uint32_t(std::ceil(o.dropout * 16777216.0));
  p.keep_scale = o.dropout >= 1 ? 0 : 1 / (1 - o.dropout);
  const int64_t past = furthest_past(p.n, o.mask);
  p.first = -past;
  p.width = past + (o.mask.is_causal() ? 1 : p.m);
  return p;
}

// The differentiable operands, in the order in which the tape has them: position, rows and lag_bias
// may be undefined. Also their gradients.
struct Operands {
  Tensor q, k, v;
  Tensor position;        // [B, H, M, D]
  Tensor rows, lag_bias;  // [H or 1, width, D] and [H or 1, width]

  Tensors list() const { return {q, k, v, position, rows, lag_bias}; }
  static Operands of(const Tensors& x) { return {x[0], x[1], x[2], x[3], x[4], x[5]}; }
  // Off the tape, rows contiguous; `rows` as [1, H or 1, width, D], so that all look alike.
  Operands for_kernels() const {
    return {rows_contiguous(q),
            rows_contiguous(k),
            rows_contiguous(v),
            rows_contiguous(position),
            rows.defined() ? rows_contiguous(rows.detach().unsqueeze(0)) : Tensor(),
            lag_bias.defined() ? lag_bias.detach().contiguous() : Tensor()};
  }
};

// The table's policy is an op of its own, so the gradient of clipped rows adds up there.
Operands operands_of(const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v,
                     const AttentionOptions& o) {
  const auto rows_of = [&p](const RelativeTable& table) {
    return table.defined() ? relative_rows(table, p.first, p.width) : Tensor();
  };
  return {q,
          k,
          v,
          o.keys.defined() ? o.position_query : Tensor(),
          rows_of(o.keys),
          rows_of(o.lag_bias)};
}

// The same call in its composed form.
Tensor composed(const Problem& p, const Operands& x) {
  return composed_attention(x.q, x.k, x.v,
                            {.mask = p.mask,
                             .scale = p.scale,
                             .position_query = x.position,
                             .keys = {x.rows, -p.first},
                             .lag_bias = {x.lag_bias, -p.first},
                             .dropout = p.dropout,
                             .dropout_key = p.dropout_key});
}

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

template <class T>
class Worker {
 public:
  Worker(const Problem& p, const Operands& x)
      : p_(p),
        q_(heads_of<T>(x.q)),
        k_(heads_of<T>(x.k)),
        v_(heads_of<T>(x.v)),
        position_(x.position.defined() ? heads_of<T>(x.position) : q_),
        rows_(heads_of<T>(x.rows)),
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
    if (p.dropout > 0) draws_.resize(size_t(most_keys + 8));
  }

  // Scores of a strip, before softmax, for the keys each row sees.
  void scores(const Strip& s) {
    gemm(s.rows, s.keys, p_.d, T(p_.scale), {q_.at(s.b, s.h, s.i0), q_.row}, keys(s, true), T(0),
         weights(), s.keys);
    if (rows_) {
      const Valid v = valid_band(s);
      clear_band(s, v);
      gemm(s.rows, v.count, p_.d, T(p_.scale), positions(s), table(s, v, true), T(0),
           band() + v.column, s.band());
    }
    const T* lag_bias = lag_bias_ ? lag_bias_ + (shared_bias_ ? 0 : s.h) * p_.width : nullptr;
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      const int64_t n = r.end - r.begin;
      T* row = weights() + i * s.keys + r.begin;
      if (rows_) add_row(row, band() + i * s.band() + s.rows - 1 - i + r.begin, n);
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
    gemm(s.rows, p_.dv, s.keys, T(1), {weights(), s.keys}, values(s), T(0), out.at(s.b, s.h, s.i0),
         out.row);
  }

  // From scores to weights, and to the scores' gradient.
  void differentiate(const Strip& s, const RowWeights<T>* softmax, const Heads<T>& grad) {
    T *w = weights(), *ds = gradient();
    gemm(s.rows, s.keys, p_.dv, T(1), {grad.at(s.b, s.h, s.i0), grad.row}, values(s, true), T(0),
         ds, s.keys);
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
  void add_gradients(const Strip& s, const Heads<T>& grad, const Heads<T>& dq, const Heads<T>& dk,
                     const Heads<T>& dv) {
    const int64_t kh = key_head(s);
    const MatrixRef<T> w{weights(), s.keys, true}, ds{gradient(), s.keys},
        dst{gradient(), s.keys, true};
    gemm(s.keys, p_.dv, s.rows, T(1), w, {grad.at(s.b, s.h, s.i0), grad.row}, T(1),
         dv.at(s.b, kh, s.j0), dv.row);
    gemm(s.rows, p_.d, s.keys, T(p_.scale), ds, keys(s), T(0), dq.at(s.b, s.h, s.i0), dq.row);
    gemm(s.keys, p_.d, s.rows, T(p_.scale), dst, {q_.at(s.b, s.h, s.i0), q_.row}, T(1),
         dk.at(s.b, kh, s.j0), dk.row);
  }

  // The same for the position query, times `keep` what is there, and for the tables.
  void add_table_gradients(const Strip& s, T keep, const Heads<T>& dposition, const Heads<T>& drows,
                           T* dlag_bias) {
    shear_gradient(s);
    const Valid v = valid_band(s);
    const T* sheared = band() + v.column;
    if (rows_) {
      gemm(s.rows, p_.d, v.count, T(p_.scale), {sheared, s.band()}, table(s, v), keep,
           dposition.at(s.b, s.h, s.i0), dposition.row);
      gemm(v.count, p_.d, s.rows, T(p_.scale), {sheared, s.band(), true}, positions(s), T(1),
           drows.at(s.b, s.h, v.row), drows.row);
    }
    if (!dlag_bias) return;
    T* to = dlag_bias + (s.b * p_.heads + s.h) * p_.width + v.row;
    for (int64_t i = 0; i < s.rows; ++i) add_row(to, sheared + i * s.band(), v.count);
  }

 private:
  T* weights() { return weights_.template data<T>(); }
  T* gradient() { return gradient_.template data<T>(); }
  T* band() { return band_.template data<T>(); }

  int64_t key_head(const Strip& s) const { return s.h / p_.per_group(); }
  MatrixRef<T> keys(const Strip& s, bool transposed = false) const {
    return {k_.at(s.b, key_head(s), s.j0), k_.row, transposed};
  }
  MatrixRef<T> values(const Strip& s, bool transposed = false) const {
    return {v_.at(s.b, key_head(s), s.j0), v_.row, transposed};
  }
  MatrixRef<T> positions(const Strip& s) const {
    return {position_.at(s.b, s.h, s.i0), position_.row};
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

  MatrixRef<T> table(const Strip& s, const Valid& v, bool transposed = false) const {
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
  const Heads<T> q_, k_, v_, position_, rows_;
  const T* lag_bias_;
  const bool shared_rows_, shared_bias_;
  const uint8_t* padding_;
  Tensor weights_, gradient_, band_;
  std::vector<uint32_t> draws_;
};

// ---------------------------------------------------------------------------- forward

template <class T>
void forward(const Problem& p, const Operands& x, const Tensor& out, const Tensor& rescaling) {
  const auto o = heads_of<T>(out);
  auto* softmax = reinterpret_cast<RowWeights<T>*>(rescaling.data<T>());
  parallel_for(p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Worker<T> work(p, x);
    for (int64_t at = begin; at < end; ++at)
      each_strip(p, at / p.heads, at % p.heads, [&](const Strip& s) {
        work.scores(s);
        work.weigh(s, softmax + at * p.m + s.i0);
        work.weigh_values(s, o);
      });
  });
}

// ---------------------------------------------------------------------------- backward

// `into`: the gradients of rows and lag_bias per batch entry and head.
template <class T>
void backward(const Problem& p, const Operands& x, const Tensor& rescaling, const Tensor& grad,
              const Operands& into) {
  const auto g = heads_of<T>(grad), dq = heads_of<T>(into.q), dk = heads_of<T>(into.k),
             dv = heads_of<T>(into.v), drows = heads_of<T>(into.rows);
  // Without a position query of its own, q's gradient has both parts.
  const bool own = into.position.defined();
  const auto dposition = own ? heads_of<T>(into.position) : dq;
  T* dlag_bias = into.lag_bias.defined() ? into.lag_bias.data<T>() : nullptr;
  const auto* softmax = reinterpret_cast<const RowWeights<T>*>(rescaling.data<T>());
  parallel_for(p.batch * p.groups, 1, [&](int64_t begin, int64_t end) {
    Worker<T> work(p, x);
    for (int64_t at = begin * p.per_group(); at < end * p.per_group(); ++at)
      each_strip(p, at / p.heads, at % p.heads, [&](const Strip& s) {
        work.scores(s);
        work.differentiate(s, softmax + at * p.m + s.i0, g);
        work.add_gradients(s, g, dq, dk, dv);
        if (drows || dlag_bias)
          work.add_table_gradients(s, T(own ? 0 : 1), dposition, drows, dlag_bias);
      });
  });
}

Tensors gradients(const Problem& p, const Operands& x, const Tensor& rescaling,
                  const Tensor& grad) {
  const DType type = x.q.dtype();
  const TensorOptions options{.dtype = type, .device = cpu};
  Operands g{.q = heads_inside(p.batch, p.heads, p.m, p.d, type, false),
             .k = heads_inside(p.batch, p.groups, p.n, p.d, type, true),
             .v = heads_inside(p.batch, p.groups, p.n, p.dv, type, true)};
  if (x.position.defined()) g.position = heads_inside(p.batch, p.heads, p.m, p.d, type, false);
  if (x.rows.defined()) g.rows = zeros({p.batch, p.heads, p.width, p.d}, options);
  if (x.lag_bias.defined()) g.lag_bias = zeros({p.batch, p.heads, p.width}, options);
  const Operands from = x.for_kernels();
  const Tensor g_out = rows_contiguous(grad);
  type == f64 ? backward<double>(p, from, rescaling, g_out, g)
              : backward<float>(p, from, rescaling, g_out, g);
  const auto total = [](const Tensor& per_head, const Tensor& like) {
    if (!like.defined()) return Tensor();
    return like.size(0) == 1 ? sum(per_head, {0, 1}).unsqueeze(0) : sum(per_head, {0});
  };
  g.rows = total(g.rows, x.rows);
  g.lag_bias = total(g.lag_bias, x.lag_bias);
  return g.list();
}

}  // namespace

bool fused_attention_covers(const Tensor& q, const AttentionOptions& o) {
  return q.device().is_cpu() && !o.values.defined() && !o.bias.defined();
}

Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o) {
  const Problem p = problem_of(q, k, v, o);
  const Operands x = operands_of(p, q, k, v, o), in = x.for_kernels();
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, q.dtype(), false);
  const Tensor rescaling = empty({p.batch, p.heads, p.m, 2}, options_of(q));
  q.dtype() == f64 ? forward<double>(p, in, out, rescaling) : forward<float>(p, in, out, rescaling);
  const Tensors inputs = x.list();
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: with O = P V and dS = P · (g Vᵀ − rowsum(g · O)): dq = scale · dS K, dk = scale ·
  // dSᵀ Q, dv = Pᵀ g; with dS sheared to relative positions dp = scale · dS R, dR = scale · dSᵀ p,
  // db = Σ dS.
  return record("attention", inputs, out, [p, saved, rescaling](Backward& b) {
    const Tensors again = values_of(saved);
    if (grad_enabled())
      return composed_gradient(
          b, [&p](const Tensors& inner) { return composed(p, Operands::of(inner)); }, again);
    return gradients(p, Operands::of(again), rescaling, b.grad());
  });
}

}  // namespace stretto
