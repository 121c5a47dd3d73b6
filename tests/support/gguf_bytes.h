// GGUF files as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stretto::testing {

/// Returns the bytes of a little-endian value.
template <class T>
std::string bytes_of_value(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Collects keys and tensors of a GGUF file.
class GgufBytes {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  static std::string text(const std::string& value) {
    return bytes_of_value(uint64_t(value.size())) + value;
  }
  /// Adds a key with the bytes of its value.
  GgufBytes& key(const std::string& name, uint32_t type, const std::string& value) {
    keys_ += text(name) + bytes_of_value(type) + value;
    ++n_keys_;
    return *this;
  }
  GgufBytes& key(const std::string& name, const std::string& value) {
    return key(name, 8, text(value));
  }
  GgufBytes& key(const std::string& name, uint32_t value) {
    return key(name, 4, bytes_of_value(value));
  }
  /// Adds a tensor with its sizes, the innermost first, and its data at the next aligned offset.
  GgufBytes& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                    const std::string& data) {
    return tensor(name, sizes, type, data, data_.size());
  }
  GgufBytes& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                    const std::string& data, uint64_t offset) {
    tensors_ += text(name) + bytes_of_value(uint32_t(sizes.size()));
    for (const uint64_t size : sizes) tensors_ += bytes_of_value(size);
    tensors_ += bytes_of_value(type) + bytes_of_value(offset);
    ++n_tensors_;
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }

  std::string file() const {
    std::string bytes = "GGUF" + bytes_of_value(version) + bytes_of_value(n_tensors_) +
                        bytes_of_value(n_keys_) + keys_ + tensors_;
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    return bytes + data_;
  }

 private:
  std::string keys_, tensors_, data_;
  uint64_t n_keys_ = 0, n_tensors_ = 0;
};

}  // namespace stretto::testing
