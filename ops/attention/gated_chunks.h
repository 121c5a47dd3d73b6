// Linear attention with decay on the CPU: the steps of one thread, which processes one chunk of
// positions of one head after the other. Internal to ops/.
//
// The equations are in gated_linear_attention_composed.cpp. Their gradients, for g = dy and dS':
//
//     du = Pᵀ g + e^{D_j} k dS'                        dP = lower triangle of g uᵀ
//     d(e^{D_i} q) = scale g Sᵀ                        d(e^{D_j} k) = u dS'ᵀ
//     dS = e^D dS' + scale (e^{D_i} q)ᵀ g              dv = du
//
// With the delta rule, u = β ∘ r and r = v − e^{D_i} k S − M u, from the last row to the first:
//
//     du_j −= Σ_{i > j} M_ij dr_i     dβ = du·r     dr = β ∘ du     dM = −(strictly lower) dr uᵀ
//     dv = dr      d(e^{D_i} k) = −dr Sᵀ      dS −= (e^{D_i} k)ᵀ dr
//
// Reference: tests/reference/gated_linear_attention.cpp, gated_linear_attention()
#pragma once

#include "gated_decays.h"
#include "heads.h"

namespace stretto::gated_chunks {
namespace {

struct GatedProblem {
  int64_t batch, heads, n, f, dv, chunk;
  bool delta;
  double scale;

  int64_t units() const { return batch * heads; }
  int64_t state_size() const { return f * dv; }
  int64_t chunks() const { return (n + chunk - 1) / chunk; }
};

struct GatedInputs {
  Tensor q, k, v, log_decay, beta;
};
struct GatedGradients {
  Tensor q, k, v, log_decay, beta;  // one head for each of H
};

template <class T, class Decays>
class GatedWorker {
 public:
  GatedWorker(const GatedProblem& p, const GatedInputs& in, bool gradients)
      : p_(p),
        q_heads_(heads_of<T>(in.q)),
        k_heads_(heads_of<T>(in.k)),
        v_heads_(heads_of<T>(in.v)),
        shared_{p.heads / in.q.size(1), p.heads / in.k.size(1), p.heads / in.v.size(1)},
        log_decay_(in.log_decay.data<T>()),
        betas_(p.delta ? in.beta.data<T>() : nullptr),
        decays_(p.chunk, p.f) {
    const int64_t c = p.chunk, square = c * c, of_values = c * p.dv;
    memory_ = work_memory<T>({{&weighted_, c * p.f},
                              {&p_products_, square},
                              {&of_start_, p.delta ? c * p.f : 0},
                              {&m_products_, p.delta ? square : 0},
                              {&u_, p.delta ? of_values : 0},
                              {&r_, p.delta ? of_values : 0},
                              {&du_, gradients ? of_values : 0},
                              {&dr_, gradients && p.delta ? of_values : 0},
                              {&d_products_, gradients ? square : 0},
                              {&d_rows_, gradients ? c * p.f : 0}});
  }

  // Loads a chunk of head h of batch entry b.
  void load(int64_t b, int64_t h, int64_t chunk) {
    b_ = b, h_ = h, first_ = chunk * p_.chunk;
    n_ = std::min(p_.chunk, p_.n - first_);
    q_ = rows_at(q_heads_, h / shared_.q);
    k_ = rows_at(k_heads_, h / shared_.k);
    v_ = rows_at(v_heads_, h / shared_.v);
    decays_.load(log_decay_ + position() * Decays::per_position(p_.f), n_);
  }

  // Computes u from the state at the beginning of the chunk.
  void compute_values(const T* s) {
    values_ = v_;
    if (!p_.delta) return;
    decays_.from_start(k_, T(1), start_keys());
    const Rows<T> r{r_, p_.dv}, u{u_, p_.dv};
    for (int64_t i = 0; i < n_; ++i) std::copy_n(v_[i], p_.dv, r[i]);
    product<T>(n_, p_.dv, p_.f, start_keys().matrix(), {s, p_.dv}, 1, r, -1);
    decays_.between(k_, k_, T(1), false, m_products_);
    blocks(false, [&](int64_t first, int64_t last) {
      product<T>(last - first, p_.dv, first, {m_products_ + first * n_, n_}, u.matrix(), 1,
                 {r[first], p_.dv}, -1);
      for (int64_t i = first; i < last; ++i) {
        for (int64_t j = first; j < i; ++j)
          rows::add_scaled(u[j], -m_products_[i * n_ + j], r[i], p_.dv);
        rows::scale_row(r[i], beta(i), u[i], p_.dv);
      }
    });
    values_ = u;
  }

  // Computes y, after compute_values().
  void attend(const T* s, const Heads<T>& out) {
    const Rows<T> y = rows_at(out, h_);
    decays_.from_start(q_, T(p_.scale), weighted());
    product<T>(n_, p_.dv, p_.f, weighted().matrix(), {s, p_.dv}, 0, y);
    decays_.between(q_, k_, T(p_.scale), true, p_products_);
    product<T>(n_, p_.dv, n_, {p_products_, n_}, values_.matrix(), 1, y);
  }

  // Replaces the state by that at the end of the chunk, after compute_values().
  void advance(T* s) {
    decays_.to_end(k_, weighted());
    decays_.all(s, p_.dv);
    product<T>(p_.f, p_.dv, n_, weighted().transposed(), values_.matrix(), 1, {s, p_.dv});
  }

  // Computes the gradients of the chunk and replaces ds, of the state at its end, by the gradient
  // of s at its beginning.
  void backward(const T* s, T* ds, const Heads<T>& grad, const GatedGradients& to) {
    const Rows<const T> g = rows_at(grad, h_);
    const Rows<T> dq = cleared(to.q, p_.f), dk = cleared(to.k, p_.f);
    T* const dg = log_decay_gradient(to.log_decay);
    compute_values(s);
    decays_.between(q_, k_, T(p_.scale), true, p_products_);
    decays_.to_end(k_, weighted());
    const Rows<T> du{du_, p_.dv}, rows{d_rows_, p_.f};
    product<T>(n_, p_.dv, n_, {p_products_, n_, true}, g.matrix(), 0, du);
    product<T>(n_, p_.dv, p_.f, weighted().matrix(), {ds, p_.dv}, 1, du);
    if (p_.delta) solve_backward(to.beta);
    const Rows<T> dv = rows_at(heads_of<T>(to.v), h_), dr = p_.delta ? Rows<T>{dr_, p_.dv} : du;
    for (int64_t i = 0; i < n_; ++i) std::copy_n(dr[i], p_.dv, dv[i]);

    outer(g, values_, false);
    decays_.between_gradient(d_products_, p_products_, q_, k_, T(p_.scale), true, dq, dk, dg);
    product<T>(n_, p_.f, p_.dv, g.matrix(), {s, p_.dv, true}, 0, rows);
    decays_.from_start_gradient(q_, rows, T(p_.scale), dq, dg);
    product<T>(n_, p_.f, p_.dv, values_.matrix(), {ds, p_.dv, true}, 0, rows);
    decays_.to_end_gradient(k_, rows, dk, dg);
    decays_.all_gradient(s, ds, p_.dv, dg);
    decays_.from_start(q_, T(p_.scale), weighted());
    product<T>(p_.f, p_.dv, n_, weighted().transposed(), g.matrix(), 1, {ds, p_.dv});
    if (!p_.delta) return;
    outer(dr, values_, true);
    decays_.between_gradient(d_products_, m_products_, k_, k_, T(1), false, dk, dk, dg);
    product<T>(n_, p_.f, p_.dv, dr.matrix(), {s, p_.dv, true}, 0, rows, -1);
    decays_.from_start_gradient(k_, rows, T(1), dk, dg);
    product<T>(p_.f, p_.dv, n_, start_keys().transposed(), dr.matrix(), 1, {ds, p_.dv}, -1);
  }

 private:
  static constexpr int64_t block = 16;  // rows of the triangular system that are solved one by one

  int64_t position() const { return (b_ * p_.heads + h_) * p_.n + first_; }
  T beta(int64_t i) const { return betas_[position() + i]; }
  Rows<T> weighted() const { return {weighted_, p_.f}; }
  Rows<T> start_keys() const { return {of_start_, p_.f}; }
  Rows<T> rows_at(const Heads<T>& x, int64_t h) const { return {x.at(b_, h, first_), x.row}; }

  Rows<T> cleared(const Tensor& x, int64_t width) const {
    const Rows<T> rows = rows_at(heads_of<T>(x), h_);
    for (int64_t i = 0; i < n_; ++i) std::fill_n(rows[i], width, T(0));
    return rows;
  }
  T* log_decay_gradient(const Tensor& x) const {
    const int64_t width = Decays::per_position(p_.f);
    T* const dg = x.data<T>() + position() * width;
    std::fill_n(dg, n_ * width, T(0));
    return dg;
  }

  // f(first, last) for all blocks of rows, in ascending or (`reversed`) descending order.
  template <class F>
  void blocks(bool reversed, F&& f) const {
    const int64_t count = (n_ + block - 1) / block;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = (reversed ? count - 1 - i : i) * block;
      f(first, std::min(first + block, n_));
    }
  }

  // Computes dr and dβ from du.
  void solve_backward(const Tensor& to) {
    const Rows<T> du{du_, p_.dv}, dr{dr_, p_.dv};
    T* const dbeta = to.data<T>() + position();
    blocks(true, [&](int64_t first, int64_t last) {
      product<T>(last - first, p_.dv, n_ - last, {m_products_ + last * n_ + first, n_, true},
                 Rows<T>{dr[last], p_.dv}.matrix(), 1, {du[first], p_.dv}, -1);
      for (int64_t j = last - 1; j >= first; --j) {
        for (int64_t i = j + 1; i < last; ++i)
          rows::add_scaled(dr[i], -m_products_[i * n_ + j], du[j], p_.dv);
        dbeta[j] = dot(du[j], r_ + j * p_.dv, p_.dv);
        rows::scale_row(du[j], beta(j), dr[j], p_.dv);
      }
    });
  }

  // d_products = ±a bᵀ.
  void outer(Rows<const T> a, Rows<const T> b, bool negative) {
    product<T>(n_, n_, p_.dv, a.matrix(), b.transposed(), 0, {d_products_, n_}, negative ? -1 : 1);
  }

  const GatedProblem& p_;
  const Heads<T> q_heads_, k_heads_, v_heads_;
  const struct {
    int64_t q, k, v;  // heads of H per head
  } shared_;
  const T *log_decay_, *betas_;
  Decays decays_;
  Tensor memory_;
  T *weighted_, *p_products_, *of_start_, *m_products_, *u_, *r_, *du_, *dr_, *d_products_,
      *d_rows_;
  int64_t b_ = 0, h_ = 0, first_ = 0, n_ = 0;
  Rows<const T> q_{}, k_{}, v_{}, values_{};
};

}  // namespace
}  // namespace stretto::gated_chunks
