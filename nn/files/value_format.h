// The formats of values in files, and reading them in a dtype of the library; for all readers of
// weights.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "../../core/digest.h"
#include "../../core/input_file.h"
#include "../../core/tensor.h"

namespace stretto::nn::files {

/// A format of values: blocks of `elements` values in `bytes` bytes.
struct ValueFormat {
  const char* name;        ///< "F32", "Q4_K", …
  int64_t elements = 1;    ///< Values of a block.
  int64_t bytes = 0;       ///< Bytes of a block.
  bool supported = false;  ///< False: such a tensor can be present, but not read.
  DType dtype = f32;  ///< The dtype in memory: f32 for F16 and quantized values, i32 for I8, I16.
  /// Converts n blocks to f32; null if another function does.
  void (*to_f32)(const uint8_t* blocks, int64_t n, float* to) = nullptr;
};

/// Returns the format of plain values by its name; null if it is unknown.
const ValueFormat* find_format(std::string_view name);
/// Returns the name under which values of a dtype are written.
const char* format_name(DType dtype);
/// Returns the names of all formats that can be read, for error texts: "F32, F64, …".
std::string format_names();

/// Returns the bytes of a tensor whose last size is a multiple of the block's; unset if that is not
/// the case, or if it has more than 2⁵⁸ elements or bytes.
std::optional<int64_t> bytes_of(const ValueFormat& format, const Shape& shape);

/// Reads a tensor from position `at` of a file; see WeightsFile::visit() for `dtype`. Bytes are
/// read and converted in chunks, on all threads. With `digest`, adds the bytes of the file to it.
Tensor read_values(const InputFile& file, int64_t at, const ValueFormat& format, const Shape& shape,
                   std::optional<DType> dtype = {}, Digest* digest = nullptr);

/// Returns the first value of a boolean tensor that is neither 0 nor 1; unset if there is none.
std::optional<int> not_boolean(const Tensor& x);

/// Converts an IEEE half to f32, exactly; a NaN keeps its payload.
inline float from_half(uint16_t half) {
  // The exponent and fraction as those of an f32 are too small by a factor of 2^(127 − 15). This
  // product is exact, also for subnormal halves.
  const uint32_t magnitude = uint32_t(half & 0x7fff) << 13, sign = uint32_t(half & 0x8000) << 16;
  const auto scaled =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000));
  return std::bit_cast<float>(sign | (magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : scaled));
}

}  // namespace stretto::nn::files
