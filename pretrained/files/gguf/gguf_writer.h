// Writes GGUF files, version 3 (gguf.h has the format).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../../../core/tensor.h"
#include "gguf.h"

namespace stretto::nn {

/// Types of matrices in a GGUF file that is written.
enum class GgufType : uint8_t {
  f32,   ///< 32 bits.
  f16,   ///< 16 bits; values beyond 65,504 are an error.
  bf16,  ///< 16 bits.
  q8_0   ///< 8.5 bits: blocks of 32 values with one scale. Rows must be a multiple of 32.
};

/// Returns the type named "f32", "f16", "bf16" or "q8_0"; throws for other names.
GgufType gguf_type_of(const std::string& name);

namespace files {

/// Returns the bytes of f32 values in a type, bit-identical to the gguf package of Python
/// (gguf.quants.quantize). Throws Error "[GGUF] NAME: …" for values that it cannot hold, and unless
/// the number of values is a multiple of 32 for q8_0.
std::string gguf_bytes(const std::vector<float>& values, GgufType type, const std::string& name);

/// Collects the keys and tensors of a file.
class GgufWriter {
 public:
  void key(const std::string& name, uint32_t value);
  void key(const std::string& name, float value);
  void key(const std::string& name, bool value);
  void key(const std::string& name, const std::string& value);
  void key(const std::string& name, const std::vector<std::string>& value);
  void key(const std::string& name, const std::vector<int32_t>& value);
  /// Adds a floating-point tensor; one with a single dimension is stored in f32.
  void tensor(const std::string& name, const Tensor& value, GgufType type);
  /// Writes the file atomically. Throws Error if it cannot be written.
  void write(const std::string& path) const;

 private:
  struct Matrix {
    std::string name;
    Tensor value;
    GgufType type;
  };
  void add(const std::string& name, uint32_t type, const std::string& value);

  std::string keys_;
  uint64_t n_keys_ = 0;
  std::vector<Matrix> tensors_;
};

}  // namespace files
}  // namespace stretto::nn
