#include "ops/spe/spe_tiles.h"

#include "ops/attention/heads.h"
#include "ops/loops.h"
#include "ops/rows.h"

namespace stretto {
namespace {

// t[l, b, c] = Σ_r g[l, b, r] codes[c][l, r].
template <class T>
STRETTO_CLONES void code_products(const T* g, const SpeCodeRows<T>& codes, int64_t rows,
                                  int64_t batch, int64_t dims, int64_t r, T* t) {
  for (int64_t l = 0; l < rows; ++l)
    for (int64_t b = 0; b < batch; ++b) {
      const T* from = g + (l * batch + b) * r;
      for (int64_t c = 0; c < dims; ++c) {
        const T* code = codes[size_t(c)] + l * r;
        t[(l * batch + b) * dims + c] =
            rows::sum<T>(r, [&](int64_t i) { return from[i] * code[i]; });
      }
    }
}

// to[l, r] += Σ_b a x[l, b] g[l, b, r], the x `step` apart.
template <class T>
STRETTO_CLONES void add_weighted(T a, const T* x, int64_t step, const T* g, int64_t rows,
                                 int64_t batch, int64_t r, T* to) {
  for (int64_t l = 0; l < rows; ++l, to += r) {
    int64_t b = 0;
    for (; b + 4 <= batch; b += 4, x += 4 * step, g += 4 * r) {
      const T x0 = a * x[0], x1 = a * x[step], x2 = a * x[2 * step], x3 = a * x[3 * step];
#pragma GCC ivdep
      for (int64_t i = 0; i < r; ++i)
        to[i] += (x0 * g[i] + x1 * g[r + i]) + (x2 * g[2 * r + i] + x3 * g[3 * r + i]);
    }
    for (; b < batch; ++b, x += step, g += r) {
      const T x0 = a * x[0];
#pragma GCC ivdep
      for (int64_t i = 0; i < r; ++i) to[i] += x0 * g[i];
    }
  }
}

}  // namespace

template <class T>
SpeGathered<T>::SpeGathered(int64_t segment, int64_t batch, int64_t r)
    : r_(r),
      x_(empty({segment, batch, most_spe_dims}, {.dtype = dtype_of<T>()})),
      t_(empty({segment, batch, most_spe_dims}, {.dtype = dtype_of<T>()})),
      g_(empty({segment, batch, r}, {.dtype = dtype_of<T>()})) {}

template <class T>
void SpeGathered<T>::load(const SpeOperand& o, const Tensor& grad, int64_t h, int64_t d0, int64_t n,
                          SpeSpan span) {
  batch_ = o.x.size(0);
  rows_ = span.size();
  dims_ = n;
  const auto x = heads_of<T>(o.x), g = heads_of<T>(grad);
  for (int64_t b = 0; b < batch_; ++b)
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t l = span.p0 - o.at + i, at = i * batch_ + b;
      std::copy_n(x.at(b, h, l) + d0, n, x_.template data<T>() + at * n);
      std::copy_n(g.at(b, h, l), r_, g_.template data<T>() + at * r_);
    }
}

template <class T>
const T* SpeGathered<T>::products(const SpeCodeRows<T>& codes) {
  T* const t = t_.template data<T>();
  code_products(g_.template data<T>(), codes, rows_, batch_, dims_, r_, t);
  return t;
}

template <class T>
double SpeGathered<T>::sum(int64_t c) const {
  const T *x = x_.template data<T>(), *t = t_.template data<T>();
  double total = 0;
  for (int64_t i = 0; i < rows_ * batch_; ++i) total += double(x[i * dims_ + c] * t[i * dims_ + c]);
  return total;
}

template <class T>
void SpeGathered<T>::add_code_gradient(int64_t c, T factor, T* to) const {
  add_weighted(factor, x_.template data<T>() + c, dims_, g_.template data<T>(), rows_, batch_, r_,
               to);
}

template class SpeGathered<float>;
template class SpeGathered<double>;

}  // namespace stretto
