// Sums and other reductions over one dimension, several or all, cumulative sums, and sorting.
//
// `keepdim` keeps reduced dimensions with size 1. Floating-point values are summed in f64 on the
// CPU, and in f32 (f64 for f64) on CUDA. The sum of integers or bool is i64 and wraps around. Means
// require a floating-point dtype. Over an empty dimension the sum is 0, mean and var are NaN, and
// max, min and argmax throw. The order of summation is fixed.
#pragma once

#include <concepts>
#include <initializer_list>
#include <utility>

#include "../core/tensor.h"

namespace stretto {

/// Dimensions of a reduction: empty means all.
using Dims = Shape;

/// Returns the sum over `dims`.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Returns the mean over `dims`.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Returns the variance over `dims`: Σ (x − mean)² / (n − correction).
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Deleted: the third argument is the correction, not keepdim.
template <std::same_as<bool> B>
Tensor var(const Tensor&, const Dims&, B keepdim, bool = false) = delete;

/// Returns the standard deviation over `dims`, the square root of var. The gradient of the standard
/// deviation of equal values is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
// Deleted: the third argument is the correction, not keepdim.
template <std::same_as<bool> B>
Tensor std(const Tensor&, const Dims&, B keepdim, bool = false) = delete;
/// Returns the p-norm (Σ |x|ᵖ)^(1/p) over `dims`, p > 0; the largest |x| for p = ∞. The gradient of
/// the norm of zeros is 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
/// Returns the product over `dims`, i64 for integers and bool; 1 over an empty dimension. The
/// gradient is exact for factors of 0.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Returns whether any element over `dims` is not 0, as bool; false over an empty dimension.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Returns whether all elements over `dims` are not 0, as bool; true over an empty dimension.
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

/// Returns the largest value along d, or NaN if there is a NaN. The gradient goes to the first
/// of equal values.
Tensor max(const Tensor& x, Int d, bool keepdim = false);
/// Returns the smallest value along d, see max.
Tensor min(const Tensor& x, Int d, bool keepdim = false);
/// Returns the largest of all elements, 0-d.
Tensor max(const Tensor& x);
/// Returns the smallest of all elements, 0-d.
Tensor min(const Tensor& x);
/// Returns the index of the first largest value along d, i64.
Tensor argmax(const Tensor& x, Int d, bool keepdim = false);
/// Returns the index of the first smallest value along d, i64.
Tensor argmin(const Tensor& x, Int d, bool keepdim = false);
/// Returns the row-major index of the first largest of all elements, i64 0-d.
Tensor argmax(const Tensor& x);
/// Returns the row-major index of the first smallest of all elements, i64 0-d.
Tensor argmin(const Tensor& x);

/// True if shape, dtype and all values are equal. NaN is not equal to anything, including itself.
bool equal(const Tensor& a, const Tensor& b);
/// True if |a − b| ≤ atol + rtol · |b| for all elements, in f64; a and b may have any dtypes
/// and broadcast. An infinity is close only to itself. NaN is close to NaN if `equal_nan`, and
/// otherwise to nothing.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

/// Returns the cumulative sum along d.
Tensor cumsum(const Tensor& x, Int d);
/// Returns the cumulative product along d, i64 for integers and bool. The gradient is exact for
/// factors of 0.
Tensor cumprod(const Tensor& x, Int d);
/// Returns the cumulative logsumexp along d: y[i] = log Σ_{j ≤ i} exp(x[j]).
Tensor logcumsumexp(const Tensor& x, Int d);
/// Returns log Σ exp(x) along d, computed relative to the maximum; −inf if all values are −inf.
///
/// The result is rounded to x's dtype. In f32 the rounding error near 1e8 is up to 4, which may
/// exceed the logarithm of the number of terms. For x − logsumexp(x) use log_softmax or
/// cross_entropy, which are as exact for large x as for x near 0.
Tensor logsumexp(const Tensor& x, Int d, bool keepdim = false);

/// The result of sort() and topk().
struct Sorted {
  Tensor values;   ///< Sorted values.
  Tensor indices;  ///< Indices of the values along the dimension, i64.
};
/// Sorts along d, ascending unless `descending`. Stable: equal values keep their order. NaN counts
/// as the largest value.
Sorted sort(const Tensor& x, Int d = -1, bool descending = false);
/// Returns the indices of sort(): gather(x, d, argsort(x, d)) is sorted.
inline Tensor argsort(const Tensor& x, Int d = -1, bool descending = false) {
  return sort(x, d, descending).indices;
}
/// Returns the k largest values along d in descending order.
Sorted topk(const Tensor& x, Int k, Int d = -1);

/// The result of unique().
struct Unique {
  Tensor values;   ///< The different values in ascending order, 1-d.
  Tensor inverse;  ///< The index in `values` of each element, i64, in the shape of the tensor.
  Tensor counts;   ///< The number of elements with each value, i64.
};
/// Returns the different values of x. NaN is not equal to NaN, so each one is
/// a separate value. No gradient.
Unique unique(const Tensor& x);
/// Returns for each value the number of elements of `sorted` [N], in ascending order, that are less
/// than it, or with `right` at most it: values of any shape → i64 of the same shape. Both have one
/// dtype and device.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);

}  // namespace stretto
