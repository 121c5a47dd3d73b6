// New tensors.
#pragma once

#include <initializer_list>
#include <vector>

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
/// Throws for a value that an integer dtype does not have.
Tensor full(const Shape& shape, double value, TensorOptions options = {});
inline Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), options_of(x)); }
inline Tensor ones_like(const Tensor& x) { return ones(x.shape(), options_of(x)); }

/// 0, 1, …, n−1; i64 by default.
Tensor arange(Int n, TensorOptions options = {.dtype = i64});
/// start, start + step, … below end. step ≠ 0, towards end.
Tensor arange(double start, double end, double step = 1, TensorOptions options = {});
/// n values from start to end, both included.
Tensor linspace(double start, double end, Int n, TensorOptions options = {});
/// Identity matrix [n, n].
Tensor eye(Int n, TensorOptions options = {});

/// Values in row-major order; the dtype is T's (float, double, BFloat16, int64_t,
/// int32_t, uint8_t or bool). Throws when the counts differ.
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device = default_device());
template <class T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor(std::vector<T>(values), Shape{int64_t(values.size())});
}
/// A 0-d tensor.
Tensor scalar(double value, TensorOptions options = {});

/// Uniform in [0, 1); standard normal. Draw i of a tensor is draw i of the key's sequence, the same
/// on every device (uniforms bit for bit). Without a key one is taken from the random state.
Tensor rand(const Shape& shape, TensorOptions options = {});
Tensor rand(const Shape& shape, RandomKey key, TensorOptions options = {});
Tensor randn(const Shape& shape, TensorOptions options = {});
Tensor randn(const Shape& shape, RandomKey key, TensorOptions options = {});
/// Normal draws first … first + n − 1 of a key's sequence, by the calling thread, to y.
void normal_draws(RandomKey key, int64_t first, int64_t n, float* y);
/// Integers in [low, high), at most 2^32 of them; i64 by default.
Tensor randint(Int low, Int high, const Shape& shape, TensorOptions options = {.dtype = i64});
/// 0 … n−1 in random order, i64 [n]; the host makes it.
Tensor randperm(Int n, Device device = default_device());

}  // namespace stretto
