// Creation of tensors.
#pragma once

#include <initializer_list>
#include <vector>

#include "../core/random.h"
#include "../core/tensor.h"

namespace stretto {

/// Returns a tensor of zeros.
Tensor zeros(const Shape& shape, TensorOptions options = {});
/// Returns a tensor of ones.
Tensor ones(const Shape& shape, TensorOptions options = {});
/// Returns a tensor filled with `value`. Throws if an integer dtype cannot represent it.
Tensor full(const Shape& shape, double value, TensorOptions options = {});
/// Returns zeros with the shape, dtype and device of x.
inline Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), options_of(x)); }
/// Returns ones with the shape, dtype and device of x.
inline Tensor ones_like(const Tensor& x) { return ones(x.shape(), options_of(x)); }

/// Returns a tensor filled with `value`, with the shape, dtype and device of x.
inline Tensor full_like(const Tensor& x, double value) {
  return full(x.shape(), value, options_of(x));
}

/// Returns 0, 1, …, n−1; i64 by default.
Tensor arange(Int n, TensorOptions options = {.dtype = i64});
/// Returns start, start + step, …, excluding end; f32 by default. step must not be 0 and must lead
/// toward end.
Tensor arange(double start, double end, double step = 1, TensorOptions options = {});
/// Returns the same for whole numbers; i64 by default.
template <WholeNumber A, WholeNumber B, WholeNumber C = int>
Tensor arange(A start, B end, C step = 1, TensorOptions options = {.dtype = i64}) {
  return arange(double(start), double(end), double(step), options);
}
/// Returns n evenly spaced values from start to end, both included.
Tensor linspace(double start, double end, Int n, TensorOptions options = {});
/// Returns the identity matrix [n, n].
Tensor eye(Int n, TensorOptions options = {});

/// Returns a tensor of `values` in row-major order, with the dtype of T (float, double, BFloat16,
/// int64_t, int32_t, uint8_t or bool). Throws if the number of values does not match the shape.
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device = default_device());
/// Returns a 1-d tensor of `values`, with the dtype of T: tensor({1.0, 2.0}) is f64.
template <class T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor(std::vector<T>(values), Shape{int64_t(values.size())});
}
/// Returns a 1-d i64 tensor: tensor({1, 2}). For i32 write tensor<int32_t>({1, 2}).
inline Tensor tensor(std::initializer_list<int> values) {
  return tensor(std::vector<int64_t>(values.begin(), values.end()), {int64_t(values.size())});
}
/// Returns a 0-d tensor.
Tensor scalar(double value, TensorOptions options = {});

/// Returns samples of the uniform distribution on [0, 1). Takes a key from the random state.
Tensor rand(const Shape& shape, TensorOptions options = {});
/// Returns samples of the uniform distribution on [0, 1): element i is sample i of the key's
/// sequence, bit-identical on every device.
Tensor rand(const Shape& shape, RandomKey key, TensorOptions options = {});
/// Returns samples of the standard normal distribution. Takes a key from the random state.
Tensor randn(const Shape& shape, TensorOptions options = {});
/// Returns samples of the standard normal distribution: element i is sample i of the key's
/// sequence, the same on every device up to rounding.
Tensor randn(const Shape& shape, RandomKey key, TensorOptions options = {});
/// Returns rand() with the shape, dtype and device of x.
inline Tensor rand_like(const Tensor& x) { return rand(x.shape(), options_of(x)); }
/// Returns randn() with the shape, dtype and device of x.
inline Tensor randn_like(const Tensor& x) { return randn(x.shape(), options_of(x)); }
/// Writes standard normal samples first … first + n − 1 of the key's sequence to y. Uses only
/// the calling thread.
void normal_draws(RandomKey key, int64_t first, int64_t n, float* y);
/// Returns uniform random integers in [low, high), with high − low ≤ 2^32; i64 by default.
Tensor randint(Int low, Int high, const Shape& shape, TensorOptions options = {.dtype = i64});
/// Returns 1 with probability p, else 0, for each element of p, in its floating-point dtype; no
/// gradient. On the CPU, throws unless all elements are in [0, 1]. Takes a key from the random
/// state.
Tensor bernoulli(const Tensor& p);
/// Returns the same with the samples of a key: element i is 1 if element i of rand(shape, key), in
/// f32, is less than p. Bit-identical on every device.
Tensor bernoulli(const Tensor& p, RandomKey key);
/// Returns n indices of the last dimension, sampled with probabilities proportional to the weights:
/// [.., V] → [.., n], i64. Without replacement, the indices of a row differ. Weights are at least 0
/// and finite. Throws if those of a row add up to 0, or without replacement if fewer than n of them
/// are above 0. Takes a key from the random state. Computed on the host.
Tensor multinomial(const Tensor& weights, Int n, bool replacement = false);
/// Returns the same with the samples of a key. Bit-identical on every device.
Tensor multinomial(const Tensor& weights, Int n, bool replacement, RandomKey key);
/// Returns a random permutation of 0 … n−1, i64 [n]. Computed on the host.
Tensor randperm(Int n, Device device = default_device());

}  // namespace stretto
