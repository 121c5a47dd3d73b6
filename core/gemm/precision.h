// The precision of f32 matrix products on the CPU (core/gemm/gemm.h).
#pragma once

#include <cstdint>

namespace stretto {

/// The precision of f32 matrix products, as in torch.set_float32_matmul_precision. With AMX the
/// three values mean six, three and one bf16 product per f32 product (core/gemm/tiles.h), with
/// subnormals flushed to zero. Exceptions, computed as without AMX: a C of fewer than 64 columns,
/// sums of fewer than 32 terms, and operands that contain NaN, infinity or a value that rounds to
/// infinity in bf16 (|x| ≥ 3.396e38). Without AMX all three values are the same, except that
/// `medium` uses bf16 products on CPUs with AVX-512 BF16.
enum class Float32MatmulPrecision : uint8_t {
  highest,  ///< The default: as exact as f32 with fused multiply-adds, or better.
  high,     ///< May split each operand into the sum of two bf16 values.
  medium    ///< May round each operand to bf16.
};

/// Sets the precision for all threads, from the next product on.
void set_float32_matmul_precision(Float32MatmulPrecision precision);
/// Returns the current precision.
Float32MatmulPrecision float32_matmul_precision();

}  // namespace stretto
