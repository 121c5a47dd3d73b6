#include "pretrained/files/gguf/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/one_line.h"

namespace stretto::nn {

namespace {

constexpr const char* op = "GGUF";
constexpr int64_t block = 32, alignment = 32;

struct TypeFormat {
  GgufType type;
  const char* name;
  uint32_t number;        // in the file
  int64_t values, bytes;  // of a block
};
constexpr TypeFormat formats[] = {{GgufType::f32, "f32", 0, 1, 4},
                                  {GgufType::f16, "f16", 1, 1, 2},
                                  {GgufType::bf16, "bf16", 30, 1, 2},
                                  {GgufType::q8_0, "q8_0", 8, block, 34}};

const TypeFormat& format_of(GgufType type) { return formats[size_t(type)]; }

// Keys of a file, as their numbers in the file.
enum KeyType : uint32_t {
  key_u32 = 4,
  key_i32 = 5,
  key_f32 = 6,
  key_bool = 7,
  key_text = 8,
  key_list = 9
};

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text_of(const std::string& value) { return bytes_of(uint64_t(value.size())) + value; }

// Rounds to the nearest half, ties to even.
uint16_t to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000;
  const float magnitude = std::abs(x);
  if (!(magnitude < 65520)) return uint16_t(sign | (std::isnan(x) ? 0x7E00 : 0x7C00));
  if (magnitude < 0x1p-14f)  // subnormal: multiples of 2^-24, and nearbyint rounds ties to even
    return uint16_t(sign | uint32_t(std::nearbyint(magnitude * 0x1p24f)));
  const uint32_t m = bits & 0x7FFFFFFF;
  return uint16_t(sign | ((m - 0x38000000 + 0xFFF + (m >> 13 & 1)) >> 13));
}

// d = max |x| / 127 as a half, then round(x / d) of 32 values, halves away from zero.
void add_q8_0(const float* x, std::string& to) {
  float most = 0;
  for (int64_t i = 0; i < block; ++i) most = std::max(most, std::abs(x[i]));
  const float d = most / 127, inverse = d == 0 ? 0 : 1 / d;
  to += bytes_of(to_half(d));
  for (int64_t i = 0; i < block; ++i) to += char(int8_t(std::round(x[i] * inverse)));
}

std::string padding(int64_t bytes) {
  return std::string(size_t((alignment - bytes % alignment) % alignment), '\0');
}

}  // namespace

GgufType gguf_type_of(const std::string& name) {
  for (const TypeFormat& f : formats)
    if (f.name == name) return f.type;
  fail(op, "the type ", in_quotes(name), "; accepted are \"f32\", \"f16\", \"bf16\", \"q8_0\"");
}

std::string files::gguf_bytes(const std::vector<float>& values, GgufType type,
                              const std::string& name) {
  std::string bytes;
  bytes.reserve(values.size() * size_t(format_of(type).bytes) / size_t(format_of(type).values));
  if (type == GgufType::f32)
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  if (type == GgufType::bf16) {
    for (const float x : values) bytes += bytes_of(BFloat16(x).bits);
    return bytes;
  }
  // A half holds up to 65,504; the scale of a block up to 127 times that.
  const float limit = type == GgufType::f16 ? 65520.0F : 65520.0F * 127;
  for (const float x : values)
    check(std::abs(x) < limit, op, name, ": the value ", x, " does not fit into ",
          format_of(type).name);
  if (type == GgufType::f16) {
    for (const float x : values) bytes += bytes_of(to_half(x));
    return bytes;
  }
  check(values.size() % block == 0, op, name, ": ", values.size(),
        " values; must be a multiple of ", block, " in q8_0");
  for (size_t i = 0; i < values.size(); i += block) add_q8_0(&values[i], bytes);
  return bytes;
}

namespace files {

void GgufWriter::add(const std::string& name, uint32_t type, const std::string& value) {
  keys_ += text_of(name) + bytes_of(type) + value;
  ++n_keys_;
}
void GgufWriter::key(const std::string& name, uint32_t value) {
  add(name, key_u32, bytes_of(value));
}
void GgufWriter::key(const std::string& name, float value) { add(name, key_f32, bytes_of(value)); }
void GgufWriter::key(const std::string& name, bool value) {
  add(name, key_bool, bytes_of(uint8_t(value)));
}
void GgufWriter::key(const std::string& name, const std::string& value) {
  add(name, key_text, text_of(value));
}
void GgufWriter::key(const std::string& name, const std::vector<std::string>& value) {
  std::string bytes = bytes_of(uint32_t(key_text)) + bytes_of(uint64_t(value.size()));
  for (const std::string& text : value) bytes += text_of(text);
  add(name, key_list, bytes);
}
void GgufWriter::key(const std::string& name, const std::vector<int32_t>& value) {
  std::string bytes = bytes_of(uint32_t(key_i32)) + bytes_of(uint64_t(value.size()));
  for (const int32_t number : value) bytes += bytes_of(number);
  add(name, key_list, bytes);
}

void GgufWriter::tensor(const std::string& name, const Tensor& value, GgufType type) {
  const GgufType used = value.dim() < 2 ? GgufType::f32 : type;
  check(used != GgufType::q8_0 || value.size(-1) % block == 0, op, name, ": rows of ",
        value.size(-1), " values; must be a multiple of ", block, " in q8_0");
  tensors_.push_back({name, value, used});
}

void GgufWriter::write(const std::string& path) const {
  std::string header = "GGUF" + bytes_of(uint32_t(3)) + bytes_of(uint64_t(tensors_.size())) +
                       bytes_of(n_keys_) + keys_;
  int64_t offset = 0;
  for (const Matrix& m : tensors_) {
    const TypeFormat& f = format_of(m.type);
    header += text_of(m.name) + bytes_of(uint32_t(m.value.dim()));
    for (int64_t d = m.value.dim() - 1; d >= 0; --d) header += bytes_of(uint64_t(m.value.size(d)));
    header += bytes_of(f.number) + bytes_of(uint64_t(offset));
    const int64_t bytes = m.value.numel() / f.values * f.bytes;
    offset += bytes + int64_t(padding(bytes).size());
  }
  header += padding(int64_t(header.size()));
  AtomicFile file(path);
  file.write(header.data(), int64_t(header.size()));
  for (const Matrix& m : tensors_) {
    std::string bytes = gguf_bytes(m.value.to(Device()).to_vector<float>(), m.type, m.name);
    bytes += padding(int64_t(bytes.size()));
    file.write(bytes.data(), int64_t(bytes.size()));
  }
  file.commit();
}

}  // namespace files
}  // namespace stretto::nn
