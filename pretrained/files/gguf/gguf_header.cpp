#include "pretrained/files/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <set>

#include "core/one_line.h"
#include "nn/files/other_format.h"
#include "nn/files/safetensors_header.h"
#include "pretrained/files/byte_reader.h"
#include "pretrained/files/dequantize.h"

namespace stretto::nn::files {
namespace {

// Types of metadata, by their number in the file.
enum class ValueType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
constexpr const char* type_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "string", "array", "u64", "i64", "f64"};
constexpr int max_depth = 4;  // of arrays in arrays

// Types of tensors, by their number in the file; null: none.
constexpr const char* tensor_types[] = {
    "F32",     "F16",   "Q4_0",   "Q4_1",  nullptr, nullptr,  "Q5_0",  "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K",  "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  nullptr, nullptr,  nullptr, "TQ1_0",   "TQ2_0",
    nullptr,   nullptr, nullptr,  "MXFP4", "NVFP4", "Q1_0"};

class HeaderReader {
 public:
  HeaderReader(const InputFile& file, const std::string& path)
      : file_(file), in_(file, "GGUF", path, 0, file.size()) {}

  GgufHeader read() {
    if (in_.remaining() < 24 || in_.text(4) != "GGUF")
      in_.bad("is not a GGUF file", other_format(file_));
    const auto version = in_.get<uint32_t>();
    if ((version & 0xffff) == 0 && version != 0)
      in_.bad("is big-endian; only little-endian files are supported");
    if (version != 2 && version != 3)
      in_.bad("has version ", version, "; supported are versions 2 and 3");
    const uint64_t n_tensors = count("tensors"), n_keys = count("keys");
    for (uint64_t i = 0; i < n_keys; ++i) key();
    for (uint64_t i = 0; i < n_tensors; ++i) tensor();
    place_data();
    return std::move(header_);
  }

 private:
  uint64_t count(const char* what) {
    const auto n = in_.get<uint64_t>();
    if (n > max_names) in_.bad("has ", n, " ", what, "; at most ", max_names, " allowed");
    return n;
  }
  std::string text() { return in_.text(in_.get<uint64_t>()); }

  ValueType value_type(const std::string& name) {
    const auto type = in_.get<uint32_t>();
    if (type >= std::size(type_names))
      in_.bad("key ", in_quotes(name), " has the unknown type ", type);
    return ValueType(type);
  }

  void key() {
    const std::string name = text();
    const ValueType type = value_type(name);
    GgufValue value = type == ValueType::array ? array(name, 1) : scalar(name, type);
    if (!header_.values.emplace(name, std::move(value)).second)
      in_.bad("key ", in_quotes(name), " occurs twice");
  }

  int64_t integer(const std::string& name, ValueType type) {
    switch (type) {
      case ValueType::u8:
        return in_.get<uint8_t>();
      case ValueType::i8:
        return in_.get<int8_t>();
      case ValueType::u16:
        return in_.get<uint16_t>();
      case ValueType::i16:
        return in_.get<int16_t>();
      case ValueType::u32:
        return in_.get<uint32_t>();
      case ValueType::i32:
        return in_.get<int32_t>();
      case ValueType::i64:
        return in_.get<int64_t>();
      default: {
        const auto value = in_.get<uint64_t>();
        if (value > uint64_t(INT64_MAX))
          in_.bad("key ", in_quotes(name), " holds ", value, "; at most ", INT64_MAX, " allowed");
        return int64_t(value);
      }
    }
  }
  double real(ValueType type) {
    return type == ValueType::f32 ? double(in_.get<float>()) : in_.get<double>();
  }
  bool truth(const std::string& name) {
    const auto value = in_.get<uint8_t>();
    if (value > 1) in_.bad("key ", in_quotes(name), ": a bool holds ", int(value));
    return value == 1;
  }

  GgufValue scalar(const std::string& name, ValueType type) {
    const char* type_name = type_names[size_t(type)];
    if (type == ValueType::string) return {type_name, text()};
    if (type == ValueType::boolean) return {type_name, truth(name)};
    if (type == ValueType::f32 || type == ValueType::f64) return {type_name, real(type)};
    return {type_name, integer(name, type)};
  }

  template <class T, class Read>
  std::vector<T> elements(uint64_t n, uint64_t least_bytes, Read read) {
    if (n > uint64_t(in_.remaining()) / least_bytes) in_.require(UINT64_MAX);
    std::vector<T> all;
    all.reserve(n);
    for (uint64_t i = 0; i < n; ++i) all.push_back(read());
    return all;
  }

  GgufValue array(const std::string& name, int depth) {
    if (depth > max_depth)
      in_.bad("key ", in_quotes(name), " has arrays in more than ", max_depth, " arrays");
    const ValueType type = value_type(name);
    const auto n = in_.get<uint64_t>();
    const std::string type_name = str("array of ", type_names[size_t(type)]);
    switch (type) {
      case ValueType::string:
        return {type_name, elements<std::string>(n, 8, [&] { return text(); })};
      case ValueType::boolean:
        return {type_name, elements<bool>(n, 1, [&] { return truth(name); })};
      case ValueType::array:
        return {type_name, elements<GgufValue>(n, 12, [&] { return array(name, depth + 1); })};
      case ValueType::f32:
      case ValueType::f64:
        return {type_name,
                elements<double>(n, type == ValueType::f32 ? 4 : 8, [&] { return real(type); })};
      default:
        return {type_name, elements<int64_t>(n, 1, [&] { return integer(name, type); })};
    }
  }

  void tensor() {
    GgufTensor t;
    t.name = text();
    if (!names_.insert(t.name).second) in_.bad("the tensor ", in_quotes(t.name), " occurs twice");
    const auto dims = in_.get<uint32_t>();
    if (dims > uint32_t(Shape::max_dims))
      in_.bad(in_quotes(t.name), " has ", dims, " dimensions; at most ", Shape::max_dims,
              " allowed");
    for (uint32_t d = 0; d < dims; ++d) {
      const auto size = in_.get<uint64_t>();
      if (size > uint64_t(INT64_MAX))
        in_.bad(in_quotes(t.name), ": the size ", size, " is too large");
      t.shape.insert(0, int64_t(size));
    }
    const auto type = in_.get<uint32_t>();
    const char* known = type < std::size(tensor_types) ? tensor_types[type] : nullptr;
    t.type = known ? known : str("type ", type);
    const auto offset = in_.get<uint64_t>();
    if (offset > uint64_t(in_.remaining()))
      in_.bad(in_quotes(t.name), ": its data begin at byte ", offset,
              " of the data, after their end");
    t.offset = int64_t(offset);
    header_.tensors.push_back(std::move(t));
  }

  int64_t alignment() const {
    const auto found = header_.values.find("general.alignment");
    if (found == header_.values.end()) return 32;
    const auto* value = std::get_if<int64_t>(&found->second.value);
    if (!value || *value < 1 || *value > 1 << 20 || !std::has_single_bit(uint64_t(*value)))
      in_.bad("key \"general.alignment\" must be a power of two, at most 1048576");
    return *value;
  }

  // Computes the positions in the file, and checks that the data are in it and do not overlap.
  void place_data() {
    const int64_t align = alignment(), start = (in_.position() + align - 1) / align * align;
    for (GgufTensor& t : header_.tensors) {
      if (t.offset % align != 0)
        in_.bad(in_quotes(t.name), ": its data begin at byte ", t.offset,
                " of the data, which is not a multiple of ", align);
      t.offset += start;
      const ValueFormat* format = find_gguf_format(t.type);
      if (!format) continue;
      const std::optional<int64_t> bytes = bytes_of(*format, t.shape);
      if (!bytes)
        in_.bad(in_quotes(t.name), ": shape ", t.shape, " of ", t.type,
                " has too many elements or rows that are not whole blocks of ", format->elements);
      t.bytes = *bytes;
      if (t.bytes > file_.size() - t.offset)
        in_.bad(in_quotes(t.name), ": truncated: ", t.bytes, " bytes of data at byte ", t.offset,
                " of a file of ", file_.size());
    }
    std::stable_sort(header_.tensors.begin(), header_.tensors.end(),
                     [](const GgufTensor& a, const GgufTensor& b) {
                       return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
                     });
    int64_t end = 0;
    for (const GgufTensor& t : header_.tensors) {
      if (t.offset < end) in_.bad(in_quotes(t.name), ": its data overlap those of another tensor");
      end = t.offset + t.bytes;
    }
  }

  const InputFile& file_;
  ByteReader in_;
  GgufHeader header_;
  std::set<std::string> names_;
};

}  // namespace

GgufHeader read_gguf_header(const InputFile& file, const std::string& path) {
  return HeaderReader(file, path).read();
}

}  // namespace stretto::nn::files
