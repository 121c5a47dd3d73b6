// The terms of attention scores that are added to products, and their gradients, in the fused
// implementation on the CPU: the only list of them there (cuda/attention/attention.cuh has that
// of the GPU). Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "attention_problem.h"
#include "attention_rows.h"

namespace stretto::strips {
namespace {

// A pair of query and key.
struct Pair {
  int64_t b, h, i, j;
};

// A term or its gradient: one number for each pair, broadcast by strides. Null: none.
template <class T>
struct ScoreTerm {
  T* data = nullptr;
  int64_t batch = 0, head = 0, query = 0, key = 0;

  // x broadcasts to [B, H, M, N].
  ScoreTerm(const AttentionProblem& p, const Tensor& x) {
    if (!x.defined()) return;
    const Shape s = x.expand({p.batch, p.heads, p.m, p.n}).strides();
    data = x.data<T>(), batch = s[0], head = s[1], query = s[2], key = s[3];
  }
  // `rows`, [.., R] with any leading dimensions of [B, H], has one number for each relative
  // position that occurs.
  static ScoreTerm of_relative_positions(const AttentionProblem& p, const Tensor& rows) {
    ScoreTerm term(p, {});
    if (!rows.defined()) return term;
    const Shape s = rows.expand({p.batch, p.heads, rows.size(-1)}).strides();
    term.data = rows.data<T>() + p.range.past - p.position(0);
    term.batch = s[0], term.head = s[1], term.query = -1, term.key = 1;
    return term;
  }

  T* at(const Pair& x) const { return data + x.b * batch + x.h * head + x.i * query + x.j * key; }
  // Adds the term to the scores of a query with n keys, of which `first` has the first.
  template <class U>
  void add_to(U* scores, const Pair& first, int64_t n) const {
    if (data) add_bias(scores, at(first), key, n);
  }
  // Adds the gradients of these scores to the gradient of the term.
  void add_gradients(const T* of_scores, const Pair& first, int64_t n) const {
    if (!data) return;
    if (key == 1)
      add_row(at(first), of_scores, n);
    else
      *at(first) += sum_row(of_scores, n);
  }
};

// All terms of dtype S, or their gradients; see ScoreTerm.
template <class S>
struct ScoreTerms {
  using T = compute_t<S>;
  const ScoreTerm<T> relative_bias;
  const ScoreTerm<S> bias;

  ScoreTerms(const AttentionProblem& p, const AttentionOptions& o)
      : relative_bias(ScoreTerm<T>::of_relative_positions(p, o.relative_bias.rows)),
        bias(p, o.bias) {}

  void add_to(T* scores, const Pair& first, int64_t n) const {
    relative_bias.add_to(scores, first, n);
    bias.add_to(scores, first, n);
  }
  void add_gradients(const T* of_scores, const Pair& first, int64_t n) const {
    relative_bias.add_gradients(of_scores, first, n);
    bias.add_gradients(of_scores, first, n);
  }
};

// Sets `to` to zeros for the gradients of the terms. They are separate for each batch entry and
// head, except that of a bias with elements for each query and key, which has the bias's sizes.
void clear_term_gradients(const AttentionProblem& p, bool of_bias, const TensorOptions& options,
                          AttentionOptions& to) {
  if (p.x.options.relative_bias.defined())
    to.relative_bias.rows = zeros({p.batch, p.heads, p.range.count()}, options);
  if (of_bias) {
    Shape sizes = p.x.options.bias.shape();
    while (sizes.dim() < 4) sizes.insert(0, 1);
    if (sizes[2] == 1 || sizes[3] == 1) sizes[0] = p.batch, sizes[1] = p.heads;
    to.bias = zeros(sizes, options);
  }
}

}  // namespace
}  // namespace stretto::strips
