#include "nn/files/value_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "core/parallel.h"

namespace stretto::nn::files {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

void halves_to_f32(const uint8_t* bytes, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + 2 * i, 2);
    to[i] = from_half(half);
  }
}

constexpr ValueFormat formats[] = {
    {"F32", 1, 4, true, f32},
    {"F64", 1, 8, true, f64},
    {"BF16", 1, 2, true, bf16},
    {"F16", 1, 2, true, f32, halves_to_f32},
    {"I64", 1, 8, true, i64},
    {"I32", 1, 4, true, i32},
    {"I16", 1, 2, true, i32},
    {"I8", 1, 1, true, i32},
    {"U8", 1, 1, true, u8},
    {"BOOL", 1, 1, true, boolean},
    // Values of these formats cannot be read.
    {"U16", 1, 2},
    {"U32", 1, 4},
    {"U64", 1, 8},
    {"F8_E4M3", 1, 1},
    {"F8_E5M2", 1, 1},
    {"F8_E4M3FNUZ", 1, 1},
    {"F8_E5M2FNUZ", 1, 1},
    {"F8_E8M0", 1, 1},
    {"C32", 1, 4},
    {"C64", 1, 8},
    {"C128", 1, 16},
};

// Converts n values of type From at `bytes`, of any alignment.
template <class From>
void convert_values(const uint8_t* bytes, int64_t n, void* to, DType dtype) {
  dispatch(dtype, [&]<class To>() {
    for (int64_t i = 0; i < n; ++i) {
      From value;
      std::memcpy(&value, bytes + int64_t(sizeof value) * i, sizeof value);
      static_cast<To*>(to)[i] = convert<To>(value);
    }
  });
}

// Converts n blocks to dtype.
void convert_blocks(const ValueFormat& format, const uint8_t* blocks, int64_t n, void* to,
                    DType dtype) {
  if (format.to_f32 && dtype == f32) return format.to_f32(blocks, n, static_cast<float*>(to));
  if (format.to_f32) {
    const int64_t step = 1024 / format.elements;  // blocks
    float values[1024];
    for (int64_t i = 0; i < n; i += step) {
      const int64_t count = std::min(step, n - i);
      format.to_f32(blocks + i * format.bytes, count, values);
      char* at = static_cast<char*>(to) + i * format.elements * item_size(dtype);
      convert_values<float>(reinterpret_cast<const uint8_t*>(values), count * format.elements, at,
                            dtype);
    }
    return;
  }
  if (format.bytes != item_size(format.dtype))  // I8, I16
    return format.bytes == 1 ? convert_values<int8_t>(blocks, n, to, dtype)
                             : convert_values<int16_t>(blocks, n, to, dtype);
  dispatch(format.dtype, [&]<class From>() { convert_values<From>(blocks, n, to, dtype); });
}

}  // namespace

const ValueFormat* find_format(std::string_view name) {
  for (const ValueFormat& format : formats)
    if (format.name == name) return &format;
  return nullptr;
}

const char* format_name(DType dtype) {
  for (const ValueFormat& format : formats)
    if (format.supported && format.dtype == dtype && format.bytes == item_size(dtype))
      return format.name;
  return "";
}

std::string format_names() {
  std::string text;
  for (const ValueFormat& format : formats)
    if (format.supported) text += str(text.empty() ? "" : ", ", format.name);
  return text;
}

std::optional<int64_t> bytes_of(const ValueFormat& format, const Shape& shape) {
  int64_t count = 1, bytes = 0;
  bool is_empty = false;
  for (const int64_t n : shape) {
    is_empty |= n == 0;
    if (n > 0 && __builtin_mul_overflow(count, n, &count)) return {};
  }
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % format.elements != 0) return {};
  if (count > int64_t(1) << 58) return {};
  if (is_empty) return 0;
  const bool overflow = __builtin_mul_overflow(count / format.elements, format.bytes, &bytes);
  return overflow || bytes > int64_t(1) << 58 ? std::optional<int64_t>() : bytes;
}

Tensor read_values(const InputFile& file, int64_t at, const ValueFormat& format, const Shape& shape,
                   std::optional<DType> dtype, Digest* digest) {
  check(format.supported, "read", "values of ", format.name, " cannot be read");
  const bool converts = dtype && is_floating(*dtype) && is_floating(format.dtype);
  const DType target = converts ? *dtype : format.dtype;
  Tensor x = empty(shape, {.dtype = target, .device = cpu});
  char* to = static_cast<char*>(x.raw_data());
  const bool as_stored =
      target == format.dtype && !format.to_f32 && format.bytes == item_size(target);
  const auto read = [&](int64_t begin, int64_t end) {  // blocks
    const int64_t bytes = (end - begin) * format.bytes, from = at + begin * format.bytes;
    char* into = to + begin * format.elements * item_size(target);
    std::vector<char> buffer(as_stored ? 0 : size_t(bytes));
    char* raw = as_stored ? into : buffer.data();
    file.read(raw, bytes, from);
    if (digest) digest->add(raw, bytes);
    if (!as_stored)
      convert_blocks(format, reinterpret_cast<const uint8_t*>(raw), end - begin, into, target);
  };
  const int64_t n = x.numel() / format.elements;
  const int64_t grain = (as_stored ? 1 << 20 : 1 << 16) / format.elements;
  if (!digest) {
    parallel_for(n, grain, read);
  } else {
    for (int64_t i = 0; i < n; i += grain) read(i, std::min(n, i + grain));
  }
  return x;
}

std::optional<int> not_boolean(const Tensor& x) {
  const auto* values = static_cast<const uint8_t*>(x.raw_data());
  for (int64_t i = 0; i < x.numel(); ++i)
    if (values[i] > 1) return int(values[i]);
  return {};
}

}  // namespace stretto::nn::files
