// The precision of f32 matrix products on the CPU (core/gemm/gemm.h).
#pragma once

#include <cstdint>

namespace stretto {

/// The precision of f32 matrix products C = A·B, as in torch.set_float32_matmul_precision.
///
/// With AMX each f32 product is computed as three (high) or one (medium) bf16 products
/// (core/gemm/tiles.h), and subnormals are flushed to zero. Three cases are computed as with
/// `highest`: fewer than 64 columns of C, an inner size below 32, and operands that contain NaN,
/// infinity or a value that rounds to infinity in bf16 (|x| ≥ 3.396e38). Without AMX all three
/// values have the same effect, except that `medium` uses bf16 products on CPUs with AVX-512 BF16.
enum class Float32MatmulPrecision : uint8_t {
  highest,  ///< The default: f32 with fused multiply-adds.
  high,     ///< May split each operand into the sum of two bf16 values.
  medium    ///< May round each operand to bf16.
};

/// Sets the precision of later products on all threads.
void set_float32_matmul_precision(Float32MatmulPrecision precision);
/// Returns the current precision.
Float32MatmulPrecision float32_matmul_precision();

}  // namespace stretto
