// The decays of one chunk of gated_linear_attention() on the CPU, with the products that they
// weight and the gradients. Internal to ops/.
//
// With D_ij = Σ_{j < t ≤ i} log α_t, the uses of decays in a chunk of C positions are
//
//     y_i = a e^{D_i} x_i            from its start: D_i = D_{i,−1}
//     y_j = e^{D_{C−1,j}} x_j        to its end
//     S' = e^{D_{C−1,−1}} S          all of it
//     P_ij = a (x_i·k_j) e^{D_ij}    between two of its positions, j ≤ i
//
// HeadDecays has one decay per position, FeatureDecays one per feature too. Every gradient of
// log α_t is a sum of terms with the factor α_t and is never a difference, so that it is exact for
// small decays: those of sources before t and targets from t on.
//
// Reference: tests/reference/gated_linear_attention.cpp, gated_linear_attention()
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../../core/gemm/gemm.h"
#include "../../core/math.h"
#include "../rows.h"
#include "work_memory.h"

namespace stretto::gated_chunks {
namespace {

// Rows of a matrix: pointer and stride.
template <class T>
struct Rows {
  T* data;
  int64_t ld;
  T* operator[](int64_t i) const { return data + i * ld; }
  MatrixRef<std::remove_const_t<T>> matrix() const { return {data, ld}; }
  MatrixRef<std::remove_const_t<T>> transposed() const { return {data, ld, true}; }
  operator Rows<const T>() const { return {data, ld}; }
};

// c = a b + beta c, with dimensions [m, k] and [k, n].
template <class T>
void product(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, int beta, Rows<T> c,
             int alpha = 1) {
  gemm(m, n, k, T(alpha), a, b, T(beta), c.data, c.ld);
}

// to = a factors ∘ x.
template <class T>
STRETTO_CLONES void weight_row(const T* x, T a, const T* factors, T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = a * factors[i] * x[i];
}

template <class T>
STRETTO_CLONES T dot(const T* x, const T* y, int64_t n) {
  return rows::sum<T>(n, [&](int64_t i) { return x[i] * y[i]; });
}

// to = e^{sums_at − sums_j}.
template <class T>
STRETTO_CLONES void exp_differences(double at, const double* sums, T* to, int64_t n) {
  for (int64_t j = 0; j < n; ++j) to[j] = math::exp(T(at - sums[j]));
}

// A row of a lower triangle: x_j = a w_j x_j for j < n, then zeros.
template <class T>
STRETTO_CLONES void weight_lower(T* x, T a, const T* w, int64_t n, int64_t width) {
  for (int64_t j = 0; j < n; ++j) x[j] *= a * w[j];
  std::fill(x + n, x + width, T(0));
}

// columns += x ∘ y.
template <class T>
STRETTO_CLONES void add_products(const T* x, const T* y, T* columns, int64_t n) {
  for (int64_t j = 0; j < n; ++j) columns[j] += x[j] * y[j];
}

// ---------------------------------------------------------------------------- one decay per head

template <class T>
class HeadDecays {
 public:
  HeadDecays(int64_t chunk, int64_t f)
      : f_(f),
        memory_(work_memory<T>({{&start_, chunk},
                                {&end_, chunk},
                                {&columns_, chunk},
                                {&before_, chunk},
                                {&between_, chunk * chunk}})),
        sums_(size_t(chunk)) {}

  static constexpr int64_t per_position(int64_t /*f*/) { return 1; }

  // Loads the logarithms of n decays. Below e^−800 a decay is 0 in every dtype.
  void load(const T* g, int64_t n) {
    if (n == n_ && std::memcmp(g, before_, size_t(n) * sizeof(T)) == 0) return;
    n_ = n;
    std::copy_n(g, n, before_);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sums_[size_t(i)] = sum += std::max(double(g[i]), -800.0);
    for (int64_t i = 0; i < n; ++i) {
      start_[i] = math::exp(T(sums_[size_t(i)]));
      end_[i] = math::exp(T(sum - sums_[size_t(i)]));
      exp_differences(sums_[size_t(i)], sums_.data(), between_ + i * n, i + 1);
    }
  }

  void from_start(Rows<const T> x, T a, Rows<T> to) const {
    for (int64_t i = 0; i < n_; ++i) rows::scale_row(x[i], a * start_[i], to[i], f_);
  }
  void to_end(Rows<const T> x, Rows<T> to) const {
    for (int64_t i = 0; i < n_; ++i) rows::scale_row(x[i], end_[i], to[i], f_);
  }
  void all(T* s, int64_t dv) const { rows::scale_row(s, start_[n_ - 1], s, f_ * dv); }

  // Computes P [n, n] with zeros above the diagonal and, unless `diagonal`, on it.
  void between(Rows<const T> x, Rows<const T> k, T a, bool diagonal, T* to) const {
    product<T>(n_, n_, f_, x.matrix(), k.transposed(), 0, {to, n_});
    weight(to, a, diagonal);
  }

  // The gradients: of x, added to dx, and of the logarithms, added to dg; dy is overwritten.
  void from_start_gradient(Rows<const T> x, Rows<T> dy, T a, Rows<T> dx, T* dg) const {
    T sum = 0;
    for (int64_t i = n_ - 1; i >= 0; --i) {
      rows::add_scaled(dy[i], a * start_[i], dx[i], f_);
      dg[i] += sum += a * start_[i] * dot(x[i], dy[i], f_);
    }
  }
  void to_end_gradient(Rows<const T> x, Rows<T> dy, Rows<T> dx, T* dg) const {
    T sum = 0;
    for (int64_t i = 0; i < n_; ++i) {
      dg[i] += sum;
      rows::add_scaled(dy[i], end_[i], dx[i], f_);
      sum += end_[i] * dot(x[i], dy[i], f_);
    }
  }
  void all_gradient(const T* s, T* ds, int64_t dv, T* dg) const {
    const T sum = start_[n_ - 1] * dot(s, ds, f_ * dv);
    for (int64_t i = 0; i < n_; ++i) dg[i] += sum;
    all(ds, dv);
  }
  void between_gradient(T* dp, const T* p, Rows<const T> x, Rows<const T> k, T a, bool diagonal,
                        Rows<T> dx, Rows<T> dk, T* dg) const {
    std::fill_n(columns_, n_, T(0));
    for (int64_t i = n_ - 1; i > 0; --i) {
      add_products(dp + i * n_, p + i * n_, columns_, i);
      dg[i] += rows::sum<T>(i, [&](int64_t j) { return columns_[j]; });
    }
    weight(dp, a, diagonal);
    product<T>(n_, f_, n_, {dp, n_}, k.matrix(), 1, dx);
    product<T>(n_, f_, n_, {dp, n_, true}, x.matrix(), 1, dk);
  }

 private:
  void weight(T* p, T a, bool diagonal) const {
    for (int64_t i = 0; i < n_; ++i)
      weight_lower(p + i * n_, a, between_ + i * n_, i + diagonal, n_);
  }

  const int64_t f_;
  int64_t n_ = 0;
  T *start_, *end_, *columns_, *before_, *between_;
  Tensor memory_;
  std::vector<double> sums_;
};

// ---------------------------------------------------------------------------- one per feature

// sums += g; to = e^sums.
template <class T>
STRETTO_CLONES void exp_of_sums(const T* g, T* sums, T* to, int64_t n) {
  for (int64_t f = 0; f < n; ++f) {
    sums[f] += g[f];
    to[f] = math::exp(sums[f]);
  }
}

// w *= alpha; returns Σ x k w.
template <class T>
STRETTO_CLONES T decayed_dot(const T* x, const T* k, const T* alpha, T* w, int64_t n) {
  for (int64_t f = 0; f < n; ++f) w[f] *= alpha[f];
  return rows::sum<T>(n, [&](int64_t f) { return x[f] * k[f] * w[f]; });
}

// The gradient a of x·(w ∘ k): sums += a x w k, dg += sums.
template <class T>
STRETTO_CLONES void dot_gradient(T a, const T* w, const T* x, const T* k, T* dx, T* dk, T* sums,
                                 T* dg, int64_t n) {
  for (int64_t f = 0; f < n; ++f) {
    dx[f] += a * w[f] * k[f];
    dk[f] += a * w[f] * x[f];
    sums[f] += a * w[f] * x[f] * k[f];
    dg[f] += sums[f];
  }
}

// The gradient of a w ∘ x: sums += x times it, before or after dg += sums.
template <class T, bool first>
STRETTO_CLONES void weight_gradient(T a, const T* w, const T* x, const T* dy, T* dx, T* sums, T* dg,
                                    int64_t n) {
  for (int64_t f = 0; f < n; ++f) {
    const T d = a * w[f] * dy[f];
    dx[f] += d;
    if constexpr (first) dg[f] += sums[f];
    sums[f] += x[f] * d;
    if constexpr (!first) dg[f] += sums[f];
  }
}

// Pairs i > j are split by halves (Yang et al. 2023, §4.3, "secondary chunking"): on level h,
// between the halves of each 2h positions,
//
//     base ≤ j < mid = base + h ≤ i < base + 2h:    e^{D_ij} = e^{D_{i,mid−1}} e^{D_{mid−1,j}}
//
// with no factor above 1, as one matrix product of weighted rows. `levels` has these factors, one
// row per position. Pairs within `leaf` positions are computed one by one.
template <class T>
class FeatureDecays {
  static constexpr int64_t leaf = 8;

 public:
  FeatureDecays(int64_t chunk, int64_t f) : f_(f), chunk_(chunk) {
    int64_t levels = 0;
    for (int64_t h = leaf; h < chunk; h *= 2) ++levels;
    const int64_t all = chunk * f;
    memory_ = work_memory<T>({{&alpha_, all},
                              {&start_, all},
                              {&end_, all},
                              {&levels_, levels * all},
                              {&x_, all},
                              {&k_, all},
                              {&more_, all},
                              {&leaf_, leaf * f},
                              {&sums_, f}});
  }

  static constexpr int64_t per_position(int64_t f) { return f; }

  void load(const T* g, int64_t n) {
    n_ = n;
    const Rows<const T> logs{g, f_};
    for (int64_t i = 0; i < n; ++i) {
      clear_sums();
      exp_of_sums(logs[i], sums_, alpha(i), f_);
    }
    forward_factors(logs, 0, n, start_);
    backward_factors(logs, 0, n, end_);
    each_level([&](int64_t base, int64_t mid, int64_t last, T* factors) {
      backward_factors(logs, base, mid, factors);
      forward_factors(logs, mid, last, factors);
    });
  }

  void from_start(Rows<const T> x, T a, Rows<T> to) const {
    for (int64_t i = 0; i < n_; ++i) weight_row(x[i], a, start_ + i * f_, to[i], f_);
  }
  void to_end(Rows<const T> x, Rows<T> to) const {
    for (int64_t i = 0; i < n_; ++i) weight_row(x[i], T(1), end_ + i * f_, to[i], f_);
  }
  void all(T* s, int64_t dv) const {
    for (int64_t f = 0; f < f_; ++f)
      rows::scale_row(s + f * dv, start_[(n_ - 1) * f_ + f], s + f * dv, dv);
  }

  void between(Rows<const T> x, Rows<const T> k, T a, bool diagonal, T* to) {
    for (int64_t i = 0; i < n_; ++i) {
      T* const row = to + i * n_;
      row[i] = diagonal ? dot(x[i], k[i], f_) : T(0);
      std::fill(row + i + 1, row + n_, T(0));
      std::fill_n(leaf_, f_, T(1));
      for (int64_t j = i - 1; j >= i / leaf * leaf; --j)
        row[j] = decayed_dot(x[i], k[j], alpha(j + 1), leaf_, f_);
    }
    each_level([&](int64_t base, int64_t mid, int64_t last, T* factors) {
      weight_halves(x, k, base, mid, last, factors);
      product<T>(last - mid, mid - base, f_, x_rows(mid).matrix(), k_rows(base).transposed(), 0,
                 {to + mid * n_ + base, n_});
    });
    for (int64_t i = 0; i < n_; ++i) rows::scale_row(to + i * n_, a, to + i * n_, i + 1);
  }

  void from_start_gradient(Rows<const T> x, Rows<T> dy, T a, Rows<T> dx, T* dg) {
    from_first(x, dy, a, dx, dg, 0, n_, start_);
  }
  void to_end_gradient(Rows<const T> x, Rows<T> dy, Rows<T> dx, T* dg) {
    to_last(x, dy, dx, dg, 0, n_, end_);
  }
  void all_gradient(const T* s, T* ds, int64_t dv, T* dg) const {
    for (int64_t f = 0; f < f_; ++f)
      sums_[f] = start_[(n_ - 1) * f_ + f] * dot(s + f * dv, ds + f * dv, dv);
    for (int64_t i = 0; i < n_; ++i) rows::add_scaled(sums_, T(1), dg + i * f_, f_);
    all(ds, dv);
  }
  void between_gradient(T* dp, const T* /*p*/, Rows<const T> x, Rows<const T> k, T a, bool diagonal,
                        Rows<T> dx, Rows<T> dk, T* dg) {
    for (int64_t i = 0; i < n_; ++i) {
      T* const row = dp + i * n_;
      rows::scale_row(row, a, row, i + diagonal);
      if (diagonal) {
        rows::add_scaled(k[i], row[i], dx[i], f_);
        rows::add_scaled(x[i], row[i], dk[i], f_);
      }
      leaf_gradient(row, i, x, k, dx, dk, dg);
    }
    each_level([&](int64_t base, int64_t mid, int64_t last, T* factors) {
      weight_halves(x, k, base, mid, last, factors);
      const MatrixRef<T> block{dp + mid * n_ + base, n_};
      const Rows<T> of_rows{more_, f_};
      product<T>(last - mid, f_, mid - base, block, k_rows(base).matrix(), 0, {of_rows[mid], f_});
      product<T>(mid - base, f_, last - mid, {block.data, n_, true}, x_rows(mid).matrix(), 0,
                 {of_rows[base], f_});
      from_first(x, of_rows, T(1), dx, dg, mid, last, factors);
      to_last(k, of_rows, dk, dg, base, mid, factors);
    });
  }

 private:
  T* alpha(int64_t i) const { return alpha_ + i * f_; }
  void clear_sums() const { std::fill_n(sums_, f_, T(0)); }
  Rows<T> x_rows(int64_t i) const { return {x_ + i * f_, f_}; }
  Rows<T> k_rows(int64_t i) const { return {k_ + i * f_, f_}; }

  // f(base, mid, last, factors of the level) for all pairs of halves.
  template <class F>
  void each_level(F&& f) const {
    T* factors = levels_;
    for (int64_t h = leaf; h < n_; h *= 2, factors += chunk_ * f_)
      for (int64_t base = 0; base + h < n_; base += 2 * h)
        f(base, base + h, std::min(base + 2 * h, n_), factors);
  }

  // factors_i = e^{Σ_{first ≤ t ≤ i}} for i in [first, last).
  void forward_factors(Rows<const T> logs, int64_t first, int64_t last, T* factors) const {
    clear_sums();
    for (int64_t i = first; i < last; ++i) exp_of_sums(logs[i], sums_, factors + i * f_, f_);
  }
  // factors_j = e^{Σ_{j < t < last}} for j in [first, last).
  void backward_factors(Rows<const T> logs, int64_t first, int64_t last, T* factors) const {
    clear_sums();
    std::fill_n(factors + (last - 1) * f_, f_, T(1));
    for (int64_t j = last - 2; j >= first; --j)
      exp_of_sums(logs[j + 1], sums_, factors + j * f_, f_);
  }

  void weight_halves(Rows<const T> x, Rows<const T> k, int64_t base, int64_t mid, int64_t last,
                     const T* factors) const {
    for (int64_t i = mid; i < last; ++i) weight_row(x[i], T(1), factors + i * f_, x_rows(i)[0], f_);
    for (int64_t j = base; j < mid; ++j) weight_row(k[j], T(1), factors + j * f_, k_rows(j)[0], f_);
  }

  // The gradient of a factors_i ∘ x_i, whose factors count the decays from `first` on, or those up
  // to `last`.
  void from_first(Rows<const T> x, Rows<T> dy, T a, Rows<T> dx, T* dg, int64_t first, int64_t last,
                  const T* factors) const {
    clear_sums();
    for (int64_t i = last - 1; i >= first; --i)
      weight_gradient<T, false>(a, factors + i * f_, x[i], dy[i], dx[i], sums_, dg + i * f_, f_);
  }
  void to_last(Rows<const T> x, Rows<T> dy, Rows<T> dx, T* dg, int64_t first, int64_t last,
               const T* factors) const {
    clear_sums();
    for (int64_t j = first; j < last; ++j)
      weight_gradient<T, true>(T(1), factors + j * f_, x[j], dy[j], dx[j], sums_, dg + j * f_, f_);
  }

  // Pairs of position i with earlier positions of its leaf: the factors, then the sums over j < t.
  void leaf_gradient(const T* row, int64_t i, Rows<const T> x, Rows<const T> k, Rows<T> dx,
                     Rows<T> dk, T* dg) const {
    const int64_t first = i / leaf * leaf;
    const Rows<T> w{leaf_ - first * f_, f_};  // e^{D_ij}
    for (int64_t j = i - 1; j >= first; --j)
      if (j == i - 1)
        std::copy_n(alpha(i), f_, w[j]);
      else
        weight_row(alpha(j + 1), T(1), w[j + 1], w[j], f_);
    clear_sums();
    for (int64_t j = first; j < i; ++j)
      dot_gradient(row[j], w[j], x[i], k[j], dx[i], dk[j], sums_, dg + (j + 1) * f_, f_);
  }

  const int64_t f_, chunk_;
  int64_t n_ = 0;
  T *alpha_, *start_, *end_, *levels_, *x_, *k_, *more_, *leaf_, *sums_;
  Tensor memory_;
};

}  // namespace
}  // namespace stretto::gated_chunks
