#include "pretrained/files/dequantize.h"

#include <cstring>

namespace stretto::nn::files {
namespace {

float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return from_half(bits);
}

// Value i and value i + 16 of a block of 32 are the low and the high nibble of byte i.
void nibbles(const uint8_t* bytes, int* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = bytes[i] & 15;
    q[i + 16] = bytes[i] >> 4;
  }
}

// The same with a fifth bit of each value.
void five_bits(const uint8_t* high, const uint8_t* bytes, int* q) {
  uint32_t bits;
  std::memcpy(&bits, high, 4);
  nibbles(bytes, q);
  for (int i = 0; i < 32; ++i) q[i] |= int(bits >> i & 1) << 4;
}

// to = scale (q − zero)
template <int n>
void scaled(float scale, const int* q, int zero, float* to) {
  for (int i = 0; i < n; ++i) to[i] = scale * float(q[i] - zero);
}

// to = scale q + shift
template <int n>
void scaled_and_shifted(float scale, const int* q, float shift, float* to) {
  for (int i = 0; i < n; ++i) to[i] = scale * float(q[i]) + shift;
}

// Scale and minimum of group g of a K block, from 12 bytes: the low 6 bits of bytes 0 … 3 and
// 4 … 7 are those of groups 0 … 3. Those of groups 4 … 7 have their low 4 bits in bytes 8 … 11 and
// their high 2 bits in the high bits of bytes 0 … 7.
struct ScaleAndMin {
  int scale, min;
};
ScaleAndMin scale_and_min(const uint8_t* bytes, int g) {
  if (g < 4) return {bytes[g] & 63, bytes[g + 4] & 63};
  const int low = bytes[g + 4];
  return {(low & 15) | (bytes[g - 4] >> 6) << 4, low >> 4 | (bytes[g] >> 6) << 4};
}

// A K block after its nibbles are known: the nibbles of groups 2i and 2i + 1 are the low and the
// high halves of 32 bytes; `high` has bit g for each value of group g, or is null.
void k_block(const uint8_t* block, const uint8_t* high, const uint8_t* low, float* to) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int g = 0; g < 8; ++g) {
    const auto [scale, min] = scale_and_min(block + 4, g);
    const float ds = d * float(scale), mt = m * float(min);
    const uint8_t* bytes = low + 32 * (g / 2);
    const int shift = g % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int above = high ? (high[i] >> g & 1) << 4 : 0;
      to[32 * g + i] = ds * float((bytes[i] >> shift & 15) | above) - mt;
    }
  }
}

void dequantize_q8_0(const uint8_t* block, int64_t n, float* to) {
  for (; n > 0; --n, block += 34, to += 32) {
    const float d = half_at(block);
    for (int i = 0; i < 32; ++i) to[i] = d * float(int8_t(block[2 + i]));
  }
}

void dequantize_q4_0(const uint8_t* block, int64_t n, float* to) {
  int q[32];
  for (; n > 0; --n, block += 18, to += 32) {
    nibbles(block + 2, q);
    scaled<32>(half_at(block), q, 8, to);
  }
}

void dequantize_q4_1(const uint8_t* block, int64_t n, float* to) {
  int q[32];
  for (; n > 0; --n, block += 20, to += 32) {
    nibbles(block + 4, q);
    scaled_and_shifted<32>(half_at(block), q, half_at(block + 2), to);
  }
}

void dequantize_q5_0(const uint8_t* block, int64_t n, float* to) {
  int q[32];
  for (; n > 0; --n, block += 22, to += 32) {
    five_bits(block + 2, block + 6, q);
    scaled<32>(half_at(block), q, 16, to);
  }
}

void dequantize_q5_1(const uint8_t* block, int64_t n, float* to) {
  int q[32];
  for (; n > 0; --n, block += 24, to += 32) {
    five_bits(block + 4, block + 8, q);
    scaled_and_shifted<32>(half_at(block), q, half_at(block + 2), to);
  }
}

void dequantize_q4_k(const uint8_t* block, int64_t n, float* to) {
  for (; n > 0; --n, block += 144, to += 256) k_block(block, nullptr, block + 16, to);
}

void dequantize_q5_k(const uint8_t* block, int64_t n, float* to) {
  for (; n > 0; --n, block += 176, to += 256) k_block(block, block + 16, block + 48, to);
}

// Each half of 128 values has 64 bytes of nibbles: the low ones are those of groups of 32 values 0
// and 1, the high ones those of groups 2 and 3. Byte i of 32 has two more bits of value i of each.
void dequantize_q6_k(const uint8_t* block, int64_t n, float* to) {
  for (; n > 0; --n, block += 210, to += 256) {
    const uint8_t* scales = block + 192;
    const float d = half_at(block + 208);
    for (int group = 0; group < 8; ++group) {  // of 32 values
      const int part = group / 4, g = group % 4;
      const uint8_t *low = block + 64 * part + 32 * (g % 2), *high = block + 128 + 32 * part;
      for (int i = 0; i < 32; ++i) {
        const float ds = d * float(int8_t(scales[2 * group + i / 16]));
        const int q = (low[i] >> (g / 2 * 4) & 15) | (high[i] >> (2 * g) & 3) << 4;
        to[32 * group + i] = ds * float(q - 32);
      }
    }
  }
}

constexpr ValueFormat formats[] = {
    {"Q8_0", 32, 34, true, f32, dequantize_q8_0},
    {"Q4_0", 32, 18, true, f32, dequantize_q4_0},
    {"Q4_1", 32, 20, true, f32, dequantize_q4_1},
    {"Q5_0", 32, 22, true, f32, dequantize_q5_0},
    {"Q5_1", 32, 24, true, f32, dequantize_q5_1},
    {"Q4_K", 256, 144, true, f32, dequantize_q4_k},
    {"Q5_K", 256, 176, true, f32, dequantize_q5_k},
    {"Q6_K", 256, 210, true, f32, dequantize_q6_k},
    // Values of these formats cannot be read.
    {"Q8_1", 32, 40},
    {"Q2_K", 256, 84},
    {"Q3_K", 256, 110},
    {"Q8_K", 256, 292},
    {"IQ2_XXS", 256, 66},
    {"IQ2_XS", 256, 74},
    {"IQ3_XXS", 256, 98},
    {"IQ1_S", 256, 50},
    {"IQ4_NL", 32, 18},
    {"IQ3_S", 256, 110},
    {"IQ2_S", 256, 82},
    {"IQ4_XS", 256, 136},
    {"IQ1_M", 256, 56},
    {"TQ1_0", 256, 54},
    {"TQ2_0", 256, 66},
    {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},
    {"Q1_0", 128, 18},
};

}  // namespace

const ValueFormat* find_gguf_format(std::string_view name) {
  for (const ValueFormat& format : formats)
    if (format.name == name) return &format;
  return find_format(name);
}

}  // namespace stretto::nn::files
