// Loops over one row of a strip of scores, for fused attention on the CPU
// (ops/attention/attention_strips.h). Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include "../../core/math.h"
#include "../loops.h"
#include "../rows.h"

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

// s = c tanh(s / c).
template <class T>
STRETTO_CLONES void cap_row(T* s, T c, int64_t n) {
  const T inverse = 1 / c;
  for (int64_t j = 0; j < n; ++j) s[j] = c * math::tanh(s[j] * inverse);
}

// The same; also returns the derivative, 1 − tanh²(s / c).
template <class T>
STRETTO_CLONES void cap_row_and_slopes(T* s, T* slopes, T c, int64_t n) {
  const T inverse = 1 / c;
  for (int64_t j = 0; j < n; ++j) {
    const T x = math::tanh(s[j] * inverse);
    s[j] = c * x;
    slopes[j] = 1 - x * x;
  }
}

template <class T>
STRETTO_CLONES void multiply_row(T* s, const T* by, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] *= by[j];
}

// The weights of a row are e^(s − shift) · scale; a row without a finite score has weights 0.
template <class T>
struct RowWeights {
  T shift, scale;
};

// `sink` points to one more score without a value; null: none.
template <class T>
STRETTO_CLONES RowWeights<T> softmax_in_place(T* s, int64_t n, const T* sink) {
  T shift = rows::softmax_shift<T>(n, [&](int64_t j) { return s[j]; });
  if (sink && *sink > shift) shift = *sink;
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp_negative(s[j] - shift);
  T total = rows::sum<T>(n, [&](int64_t j) { return s[j]; });
  if (sink) total += math::exp_negative(*sink - shift);
  const T scale = rows::softmax_scale(total);
  for (int64_t j = 0; j < n; ++j) s[j] *= scale;
  return {shift, scale};
}

// Recomputes the weights, bit-identical to softmax_in_place.
template <class T>
STRETTO_CLONES void softmax_again(T* s, int64_t n, RowWeights<T> row) {
  for (int64_t j = 0; j < n; ++j) s[j] = math::exp_negative(s[j] - row.shift) * row.scale;
}

// The gradient of softmax: ds = w ∘ (ds − Σ w ds). Returns Σ w ds.
template <class T>
STRETTO_CLONES T softmax_gradient(const T* w, T* ds, int64_t n) {
  const T dot = rows::sum<T>(n, [&](int64_t j) { return w[j] * ds[j]; });
  for (int64_t j = 0; j < n; ++j) ds[j] = w[j] * (ds[j] - dot);
  return dot;
}

// Zeroes elements of ds whose weight is 0.
template <class T>
STRETTO_CLONES void clear_unweighted(T* ds, const T* w, int64_t n) {
  for (int64_t j = 0; j < n; ++j) ds[j] = w[j] == 0 ? T(0) : ds[j];
}

}  // namespace
}  // namespace stretto::strips
