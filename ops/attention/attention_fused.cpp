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
#include "core/blas.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

// ---------------------------------------------------------------------------- row kernels

// s += p; b may be null.
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

// ---------------------------------------------------------------------------- one problem

// Everything that forward and backward have in common.
struct Problem {
  int64_t batch, heads, groups, m, n, d, dv;
  double scale;
  AttentionOptions options;
  int64_t first = 0, width = 0;  // relative positions first … first + width − 1 have rows
  bool shared_rows = false, shared_bias = false;
  uint32_t drop_below = 0;
  double keep_scale = 1;

  int64_t block_rows() const { return n > 4096 ? 16 : n > 1024 ? 32 : 64; }
  int64_t per_group() const { return heads / groups; }
  int64_t position(int64_t i) const { return i + n - m; }
};

// The strip of one block of queries.
struct Strip {
  int64_t i0, rows;  // queries
  int64_t j0, keys;  // keys that any of them sees
  int64_t band() const { return keys + rows - 1; }
};

Strip strip_of(const Problem& p, int64_t i0) {
  Strip s{i0, std::min(p.block_rows(), p.m - i0), 0, 0};
  const KeyRange low = visible_keys(p.position(i0), p.n, p.options);
  const KeyRange high = visible_keys(p.position(i0 + s.rows - 1), p.n, p.options);
  s.j0 = low.begin;
  s.keys = std::max<int64_t>(0, high.end - low.begin);
  return s;
}

template <class T>
class Worker {
 public:
  Worker(const Problem& p, const Tensor& padding)
      : p_(p), padding_(padding.defined() ? padding.data<uint8_t>() : nullptr) {
    int64_t most_keys = 0;
    for (int64_t i = 0; i < p.m; i += p.block_rows())
      most_keys = std::max(most_keys, strip_of(p, i).keys);
    const int64_t rows = std::min(p.block_rows(), p.m);
    const Options options{.dtype = dtype_of<T>()};
    weights_ = empty({rows, most_keys}, options);
    gradient_ = empty({rows, most_keys}, options);
    band_ = empty({rows, std::max<int64_t>(0, most_keys + rows - 1)}, options);
    if (p.options.dropout > 0) draws_.resize(size_t(most_keys + 8));
  }

  T* weights() { return weights_.template data<T>(); }
  T* gradient() { return gradient_.template data<T>(); }
  T* band() { return band_.template data<T>(); }

  // Scores of a strip, before softmax, for the keys each row sees.
  void scores(const Strip& s, int64_t b, int64_t h, Heads<T> q, Heads<T> k, Heads<T> position,
              Heads<T> rows, const T* lag_bias) {
    const int64_t kh = h / p_.per_group();
    gemm(s.rows, s.keys, p_.d, T(p_.scale), {q.at(b, h, s.i0), q.row},
         {k.at(b, kh, s.j0), k.row, true}, T(0), weights(), s.keys);
    if (rows) {
      const Valid v = valid_band(s);
      clear_band(s, v);
      gemm(s.rows, v.count, p_.d, T(p_.scale), {position.at(b, h, s.i0), position.row},
           {rows.at(0, p_.shared_rows ? 0 : h, v.row), rows.row, true}, T(0), band() + v.column,
           s.band());
    }
    for (int64_t i = 0; i < s.rows; ++i) {
      const KeyRange r = visible(s, i);
      T* row = weights() + i * s.keys;
      if (rows)
        add_row(row + r.begin, band() + i * s.band() + s.rows - 1 - i + r.begin, r.end - r.begin);
      if (lag_bias) {
        const int64_t lag = s.j0 + r.begin - p_.position(s.i0 + i) - p_.first;
        add_row(row + r.begin, lag_bias + lag, r.end - r.begin);
      }
      if (padding_)
        hide_padding(row + r.begin, padding_ + b * p_.n + s.j0 + r.begin, r.end - r.begin);
    }
  }

  // The keys that row i of the strip sees, counted from the strip's first key.
  KeyRange visible(const Strip& s, int64_t i) const {
    const KeyRange r = visible_keys(p_.position(s.i0 + i), p_.n, p_.options);
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
  void drop(const Strip& s, int64_t b, int64_t h, int64_t i, T* strip) {
    const KeyRange r = visible(s, i);
    const uint64_t first =
        (uint64_t(b * p_.heads + h) * uint64_t(p_.m) + uint64_t(s.i0 + i)) * uint64_t(p_.n) +
        uint64_t(s.j0 + r.begin);
    const int64_t n = r.end - r.begin, skip = int64_t(first % 4);
    philox_blocks(*p_.options.dropout_key, first / 4, (n + skip + 3) / 4, draws_.data());
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

 private:
  const Problem& p_;
  const uint8_t* padding_;
  Tensor weights_, gradient_, band_;
  std::vector<uint32_t> draws_;
};

// ---------------------------------------------------------------------------- forward

struct Inputs {
  Tensor q, k, v, position, rows, lag_bias, padding;
};

template <class T>
const T* bias_of(const Problem& p, const Tensor& bias, int64_t h) {
  return bias.defined() ? bias.data<T>() + (p.shared_bias ? 0 : h) * p.width : nullptr;
}

template <class T>
void forward(const Problem& p, const Inputs& in, const Tensor& out, const Tensor& rescaling) {
  const auto q = heads_of<T>(in.q), k = heads_of<T>(in.k), v = heads_of<T>(in.v),
             position = heads_of<T>(in.position), rows = heads_of<T>(in.rows), o = heads_of<T>(out);
  auto* softmax = reinterpret_cast<RowWeights<T>*>(rescaling.data<T>());
  parallel_for(p.batch * p.heads, 1, [&](int64_t begin, int64_t end) {
    Worker<T> work(p, in.padding);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / p.heads, h = at % p.heads;
      for (int64_t i0 = 0; i0 < p.m; i0 += p.block_rows()) {
        const Strip s = strip_of(p, i0);
        work.scores(s, b, h, q, k, position ? position : q, rows, bias_of<T>(p, in.lag_bias, h));
        for (int64_t i = 0; i < s.rows; ++i) {
          const KeyRange r = work.visible(s, i);
          softmax[at * p.m + i0 + i] =
              softmax_in_place(work.weights() + i * s.keys + r.begin, r.end - r.begin);
          work.clear_unseen(s, i, work.weights());
          if (p.options.dropout > 0) work.drop(s, b, h, i, work.weights());
        }
        gemm(s.rows, p.dv, s.keys, T(1), {work.weights(), s.keys},
             {v.at(b, h / p.per_group(), s.j0), v.row}, T(0), o.at(b, h, i0), o.row);
      }
    }
  });
}

// ---------------------------------------------------------------------------- backward

struct Gradients {
  Tensor q, k, v, position, rows, lag_bias;  // rows and lag_bias: per batch entry and head
};

template <class T>
void backward(const Problem& p, const Inputs& in, const Tensor& rescaling, const Tensor& grad,
              const Gradients& out) {
  const auto q = heads_of<T>(in.q), k = heads_of<T>(in.k), v = heads_of<T>(in.v),
             position = heads_of<T>(in.position), rows = heads_of<T>(in.rows),
             g = heads_of<T>(grad), dq = heads_of<T>(out.q), dk = heads_of<T>(out.k),
             dv = heads_of<T>(out.v), dposition = heads_of<T>(out.position),
             drows = heads_of<T>(out.rows);
  const auto* softmax = reinterpret_cast<const RowWeights<T>*>(rescaling.data<T>());
  const auto from = position ? position : q, into = position ? dposition : dq;
  parallel_for(p.batch * p.groups, 1, [&](int64_t begin, int64_t end) {
    Worker<T> work(p, in.padding);
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / p.groups, kh = at % p.groups;
      for (int64_t h = kh * p.per_group(); h < (kh + 1) * p.per_group(); ++h) {
        for (int64_t i0 = 0; i0 < p.m; i0 += p.block_rows()) {
          const Strip s = strip_of(p, i0);
          T *w = work.weights(), *ds = work.gradient();
          const MatrixRef<T> gs{g.at(b, h, i0), g.row};
          work.scores(s, b, h, q, k, from, rows, bias_of<T>(p, in.lag_bias, h));
          gemm(s.rows, s.keys, p.dv, T(1), gs, {v.at(b, kh, s.j0), v.row, true}, T(0), ds, s.keys);
          for (int64_t i = 0; i < s.rows; ++i) {
            const KeyRange r = work.visible(s, i);
            T *wi = w + i * s.keys + r.begin, *di = ds + i * s.keys + r.begin;
            const int64_t n = r.end - r.begin;
            softmax_again(wi, n, softmax[(b * p.heads + h) * p.m + i0 + i]);
            if (p.options.dropout > 0) work.drop(s, b, h, i, ds);
            softmax_gradient(wi, di, n);
            work.clear_unseen(s, i, w);
            work.clear_unseen(s, i, ds);
            if (p.options.dropout > 0) work.drop(s, b, h, i, w);
          }
          const MatrixRef<T> wt{w, s.keys, true}, dst{ds, s.keys, true}, dsm{ds, s.keys};
          gemm(s.keys, p.dv, s.rows, T(1), wt, gs, T(1), dv.at(b, kh, s.j0), dv.row);
          gemm(s.rows, p.d, s.keys, T(p.scale), dsm, {k.at(b, kh, s.j0), k.row}, T(0),
               dq.at(b, h, i0), dq.row);
          gemm(s.keys, p.d, s.rows, T(p.scale), dst, {q.at(b, h, i0), q.row}, T(1),
               dk.at(b, kh, s.j0), dk.row);
          if (!rows && !out.lag_bias.defined()) continue;
          work.shear_gradient(s);
          const auto valid = work.valid_band(s);
          const T* band = work.band() + valid.column;
          if (rows) {
            gemm(s.rows, p.d, valid.count, T(p.scale), {band, s.band()},
                 {rows.at(0, p.shared_rows ? 0 : h, valid.row), rows.row}, T(position ? 0 : 1),
                 into.at(b, h, i0), into.row);
            gemm(valid.count, p.d, s.rows, T(p.scale), {band, s.band(), true},
                 {from.at(b, h, i0), from.row}, T(1), drows.at(b, h, valid.row), drows.row);
          }
          if (out.lag_bias.defined()) {
            T* db = out.lag_bias.data<T>() + (b * p.heads + h) * p.width + valid.row;
            for (int64_t i = 0; i < s.rows; ++i) add_row(db, band + i * s.band(), valid.count);
          }
        }
      }
    }
  });
}

}  // namespace

bool fused_attention_covers(const Tensor& q, const AttentionOptions& o) {
  return q.device().is_cpu() && !o.values.defined() && !o.bias.defined();
}

Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& o) {
  Problem p{.batch = q.size(0),
            .heads = q.size(1),
            .groups = k.size(1),
            .m = q.size(2),
            .n = k.size(2),
            .d = q.size(3),
            .dv = v.size(3),
            .scale = score_scale(q, o),
            .options = o};
  p.drop_below = uint32_t(std::ceil(o.dropout * 16777216.0));
  p.keep_scale = o.dropout >= 1 ? 0 : 1 / (1 - o.dropout);
  const int64_t past = furthest_past(p.n, o);
  p.first = -past;
  p.width = past + (o.causal ? 1 : p.m);
  // The table's policy is an op of its own, so the gradient of clipped rows adds up there.
  const Tensor rows = o.keys.defined() ? relative_rows(o.keys, p.first, p.width) : Tensor();
  const Tensor bias = o.lag_bias.defined() ? relative_rows(o.lag_bias, p.first, p.width) : Tensor();
  p.shared_rows = rows.defined() && rows.size(0) == 1;
  p.shared_bias = bias.defined() && bias.size(0) == 1;
  const Tensor position = o.keys.defined() ? o.position_query : Tensor();
  // Rows [H or 1, R, D] as [1, H or 1, R, D], so that all operands look alike.
  auto with_batch = [](const Tensor& x) { return x.defined() ? x.detach().unsqueeze(0) : x; };
  auto inputs_of = [=](const Tensor& q_, const Tensor& k_, const Tensor& v_, const Tensor& p_,
                       const Tensor& r_, const Tensor& b_) {
    return Inputs{rows_contiguous(q_),
                  rows_contiguous(k_),
                  rows_contiguous(v_),
                  rows_contiguous(p_),
                  rows_contiguous(with_batch(r_)),
                  b_.defined() ? b_.detach().contiguous() : Tensor(),
                  o.key_padding.defined() ? o.key_padding.to(u8).contiguous() : Tensor()};
  };
  const DType type = q.dtype();
  const Tensor out = heads_inside(p.batch, p.heads, p.m, p.dv, type, false);
  const Tensor rescaling = empty({p.batch, p.heads, p.m, 2}, {.dtype = type});
  const Inputs in = inputs_of(q, k, v, position, rows, bias);
  type == f64 ? forward<double>(p, in, out, rescaling) : forward<float>(p, in, out, rescaling);
  // Gradients: with O = P V and dS = P · (g Vᵀ − rowsum(g · O)): dq = scale · dS K, dk = scale ·
  // dSᵀ Q, dv = Pᵀ g; with dS sheared to relative positions dp = scale · dS R, dR = scale · dSᵀ p,
  // db = Σ dS.
  return record("attention", {q, k, v, position, rows, bias}, out,
                [=, sq = Saved(q), sk = Saved(k), sv = Saved(v), sp = Saved(position),
                 sr = Saved(rows), sb = Saved(bias)](Backward& b) {
                  once_differentiable("attention");
                  const Inputs again = inputs_of(sq(), sk(), sv(), sp(), sr(), sb());
                  const Options options{.dtype = type};
                  Gradients g;
                  g.q = heads_inside(p.batch, p.heads, p.m, p.d, type, false);
                  g.k = heads_inside(p.batch, p.groups, p.n, p.d, type, true);
                  g.v = heads_inside(p.batch, p.groups, p.n, p.dv, type, true);
                  if (sp.defined())
                    g.position = heads_inside(p.batch, p.heads, p.m, p.d, type, false);
                  if (sr.defined()) g.rows = zeros({p.batch, p.heads, p.width, p.d}, options);
                  if (sb.defined()) g.lag_bias = zeros({p.batch, p.heads, p.width}, options);
                  const Tensor grad = rows_contiguous(b.grad());
                  type == f64 ? backward<double>(p, again, rescaling, grad, g)
                              : backward<float>(p, again, rescaling, grad, g);
                  auto total = [](const Tensor& x, bool shared) {
                    if (!x.defined()) return x;
                    return shared ? sum(x, {0, 1}).unsqueeze(0) : sum(x, {0});
                  };
                  return Tensors{g.q,
                                 g.k,
                                 g.v,
                                 g.position,
                                 total(g.rows, p.shared_rows),
                                 total(g.lag_bias, p.shared_bias)};
                });
}

}  // namespace stretto
