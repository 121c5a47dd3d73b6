// The CUDA side of ops/: plain functions, no CUDA header. ops/ checks arguments (one device, valid
// shapes, accepted dtypes) and calls these; what is accepted here is said per function. Results are
// new row-major tensors on the device of the first argument. Work is queued on the device's one
// stream; copies to the host wait for it.
//
// Implemented in the .cu of the op's stem, or in none.cpp in a build without CUDA.
#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace stretto::cuda {

// device-wide fills and copies [elementwise.cu]. Any dtype, any strides.
void fill(const Tensor& out, double value);
/// Same shape; converts the dtype as convert() of core/dtype.h does.
void strided_copy(const Tensor& to, const Tensor& from);

// [random.cu] f32, f64 or bf16, contiguous. Element i is draw i of the sequence, as on the CPU;
// normals come in pairs (2j, 2j+1).
void fill_uniform(const Tensor& out, RandomKey key);
void fill_normal(const Tensor& out, RandomKey key);

// [elementwise.cu] f32, f64 or bf16, any strides, a and b of one dtype; broadcasting.
enum class Binary { add, sub, mul, div };
Tensor binary(Binary op, const Tensor& a, const Tensor& b);
Tensor add_scalar(const Tensor& x, double value);
Tensor mul_scalar(const Tensor& x, double value);
Tensor div_scalar(const Tensor& x, double value);
/// to += scale · from, `from` broadcast to the shape of `to`; one dtype.
void add_scaled(const Tensor& to, const Tensor& from, double scale);

/// [reduce.cu] Sum over `sorted_dims` (0 … dim−1, ascending, none: no dimension), f32, f64 or bf16,
/// any strides; accumulated in f32 (f64 for f64) in a fixed order.
Tensor sum(const Tensor& x, const Shape& sorted_dims, bool keepdim);

/// [matmul.cu] op(a) [.., M, K] · op(b) [.., K, N] → [.., M, N], where `transpose_` says that the
/// operand lies in memory with its last two dimensions exchanged. Contiguous, f32 (full precision),
/// f64 or bf16 (f32 accumulation). Leading dimensions are equal, or b has none and is shared.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b);

/// [softmax.cu] Along the last dimension; contiguous, f32, f64 or bf16. A row of −inf gives zeros.
Tensor softmax(const Tensor& x);
/// y · (g − Σ g·y) for y = softmax(x).
Tensor softmax_backward(const Tensor& y, const Tensor& g);

/// [skew.cu] As in ops/attention/skew.h; contiguous, f32, f64 or bf16. [.., M, W] → [.., M,
/// n_keys].
Tensor skew(const Tensor& x, int64_t n_keys);
/// [.., M, N] → [.., M, width].
Tensor unskew(const Tensor& y, int64_t width);

/// For the tests: the first n 32-bit integers of a sequence, by cuRAND's own Philox 4x32-10
/// [curand_check.cu; on the CPU too, wherever the toolkit is], and by our philox() on a GPU
/// [random.cu]. Both must equal philox() on the host.
void curand_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device);
void device_philox(RandomKey key, int64_t n, uint32_t* host_out, Device device);

}  // namespace stretto::cuda
