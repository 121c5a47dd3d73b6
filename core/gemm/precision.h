// How exact products of f32 on the CPU are [core/gemm/gemm.h].
#pragma once

#include <cstdint>

namespace stretto {

/// How exact products of f32 are, as torch.set_float32_matmul_precision: at `highest`, the default,
/// as f32 with fused multiply-adds or better; `high` may take each number as the sum of two of bf16
/// and `medium` as one. With AMX they are six, three and one product of bf16 (core/gemm/tiles.h),
/// in which subnormals are zeros; large operands and C of less than 64 columns or 32 terms are as
/// without AMX. Without AMX `highest` and `high` are the same, and `medium` too but for
/// processors with AVX-512 with bf16.
enum class Float32MatmulPrecision : uint8_t { highest, high, medium };

/// For all threads, from the next product on.
void set_float32_matmul_precision(Float32MatmulPrecision precision);
Float32MatmulPrecision float32_matmul_precision();

}  // namespace stretto
