// Sums and other reductions over one dimension, several, or all; and running sums.
//
// `keepdim` keeps reduced dimensions with size 1. Floating sums are kept in f64 on the CPU and in
// f32 (f64 for f64) on CUDA, those of integers and bool in i64 (wrapping around), also their
// result's dtype; means need a floating dtype. Over an empty dimension sum is 0, mean and var are
// NaN, max, min and argmax are errors. Sums run in a fixed order.
#pragma once

#include <concepts>
#include <initializer_list>
#include <utility>

#include "../core/tensor.h"

namespace stretto {

/// Dimensions of a reduction: empty means all.
using Dims = Shape;

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Mean squared distance from the mean, times n / (n − correction).
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
template <std::same_as<bool> B>
Tensor var(const Tensor&, const Dims&, B keepdim, bool = false) = delete;  // third: the correction

/// Largest (smallest) value along d; NaN wins. The gradient goes to the first of equal values.
Tensor max(const Tensor& x, Int d, bool keepdim = false);
Tensor min(const Tensor& x, Int d, bool keepdim = false);
/// Of all elements, as a 0-d tensor.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// Index of the first largest value along d, i64.
Tensor argmax(const Tensor& x, Int d, bool keepdim = false);

/// Whether shape, dtype and all values are the same. NaN equals nothing, not even itself.
bool equal(const Tensor& a, const Tensor& b);
/// Whether |a − b| ≤ atol + rtol · |b| everywhere, in f64, for tensors of any dtypes that
/// broadcast. An infinity is close to itself alone; NaN to nothing, with `equal_nan` to NaN.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

/// Running sum along d.
Tensor cumsum(const Tensor& x, Int d);
/// log Σ exp(x) along d, computed around the maximum; −inf when all are −inf. One number, rounded
/// to x's dtype: about 1e8 in f32 it is off by up to 4, more than log Σ of many equal terms.
/// Differences from it are what log_softmax and cross_entropy give, which are as good there as
/// about 0.
Tensor logsumexp(const Tensor& x, Int d, bool keepdim = false);

/// Values and their indices (i64). NaN counts as largest; equal values keep their order.
struct Sorted {
  Tensor values, indices;
};
/// Along d, ascending unless `descending`; stable.
Sorted sort(const Tensor& x, Int d = -1, bool descending = false);
/// The k largest along d, in falling order.
Sorted topk(const Tensor& x, Int k, Int d = -1);

}  // namespace stretto
