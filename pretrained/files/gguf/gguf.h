// The GGUF format of llama.cpp, versions 2 and 3, little-endian: metadata of several types, and
// tensors, many of them quantized, in one file.
//
//   "GGUF"  version (u32)  number of tensors (u64)  number of keys (u64)
//   keys      name, type (u32), value; a string is its length (u64) and its bytes
//   tensors   name, number of dimensions (u32), sizes (u64, the innermost first), type (u32),
//             offset in the data (u64)
//   data      aligned to the key "general.alignment" (32), as is each tensor
//
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "../../../nn/files/weights_file.h"

namespace stretto::nn {

/// A value of the metadata of a GGUF file.
struct GgufValue {
  /// Integers of all sizes become int64_t, f32 becomes double, exactly.
  using Value =
      std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                   std::vector<double>, std::vector<std::string>, std::vector<GgufValue>>;

  std::string type;  ///< The type in the file: "u32", "string", "array of f32", …
  Value value;       ///< The value.
};

/// An open GGUF file. Tensors have shapes in row-major order, [out, in] for the matrix of a linear
/// layer. F32, F64, BF16, I32 and I64 are read as they are, F16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1,
/// Q4_K, Q5_K and Q6_K as f32, bit-identical to the gguf package of Python, and I8 and I16 as i32.
/// Tensors of other types can be present, but not read.
class GgufFile : public WeightsFile {
 public:
  /// Opens a file. Throws Error if it is not a valid GGUF file, big-endian, of another version, or
  /// a part of a model in several files.
  explicit GgufFile(std::string path);
  ~GgufFile() override;

  /// Returns the metadata by key. metadata() has the same values as texts, without arrays.
  const std::map<std::string, GgufValue>& values() const { return values_; }
  /// Returns the value of a key; null if there is none.
  const GgufValue* find(const std::string& key) const;

  /// Returns the value of a key as T, one of the types of GgufValue::Value; integers can also be
  /// read as double. Throws Error if there is none or if it has another type:
  ///
  ///     [GGUF] a.gguf: key "llama.block_count" is a string; expected an integer
  template <class T>
  T get(const std::string& key) const {
    const GgufValue* found = find(key);
    if (const T* value = found ? std::get_if<T>(&found->value) : nullptr) return *value;
    if constexpr (std::is_same_v<T, double>)
      if (const auto* value = found ? std::get_if<int64_t>(&found->value) : nullptr)
        return double(*value);
    wrong_type(key, found, GgufValue::Value(T()).index());
  }
  /// Returns the value of a key as T, or `fallback` if there is none.
  template <class T>
  T get(const std::string& key, T fallback) const {
    return find(key) ? get<T>(key) : fallback;
  }

  void visit(const Wanted& wanted, const Use& use, const ReadAs& read_as = {}) const override;

 private:
  struct Content;
  [[noreturn]] void wrong_type(const std::string& key, const GgufValue* found,
                               size_t expected) const;

  std::map<std::string, GgufValue> values_;
  std::unique_ptr<Content> content_;
};

}  // namespace stretto::nn
