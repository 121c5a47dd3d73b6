// The quantized formats of GGUF files: n blocks to f32, bit-identical to the gguf package of Python
// (gguf.quants.dequantize). Each product and sum is rounded to f32 once.
//
// d and m are halves. A block of 32 values has one scale (and minimum); a K block has 256 values in
// groups of 32 or 16, each with a 6- or 8-bit scale.
//
//     Q8_0   d, 32 × i8                               d q
//     Q4_0   d, 16 × two nibbles                      d (q − 8)
//     Q4_1   d, m, 16 × two nibbles                   d q + m
//     Q5_0   d, 32 high bits, 16 × two nibbles        d (q − 16)
//     Q5_1   d, m, 32 high bits, 16 × two nibbles     d q + m
//     Q4_K   d, m, 8 scales and minima of 6 bits, 128 × two nibbles               (d s) q − (m t)
//     Q5_K   the same with 256 high bits before the nibbles                       (d s) q − (m t)
//     Q6_K   128 × two nibbles, 64 × four high pairs of bits, 16 scales, d        (d s) (q − 32)
#pragma once

#include <cstdint>
#include <string_view>

#include "../../nn/files/value_format.h"

namespace stretto::nn::files {

/// Returns a format of a GGUF file by its name, quantized or not; null if it is unknown.
const ValueFormat* find_gguf_format(std::string_view name);

}  // namespace stretto::nn::files
