// The tokens of a model: text to id and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../files/definition.h"

namespace stretto::nn::tokenizers {

/// Returns a hash of bytes.
uint64_t hash_bytes(std::string_view bytes);

/// A map from byte strings to ids of 0 … INT32_MAX.
class StringTable {
 public:
  /// Adds a key; false if it is present.
  bool insert(std::string_view key, int32_t id);
  /// Returns the id of a key; −1 if it is not present.
  int32_t find(std::string_view key) const;

 private:
  struct Slot {
    uint32_t hash, begin, size;
    int32_t id = -1;
  };
  void grow();
  size_t slot_of(std::string_view key, uint32_t hash) const;

  std::vector<Slot> slots_;
  std::string bytes_;
  size_t count_ = 0;
};

/// The vocabulary of a model. Ids may have gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Throws Error "[tokenizer] name: …" for a token or an id that occurs twice.
  Vocabulary(const std::vector<Token>& tokens, const std::string& name);

  /// Returns the id of a token; −1 if it is not in the vocabulary.
  int32_t find(std::string_view token) const { return ids_.find(token); }
  /// Returns the largest id + 1.
  int32_t size() const { return int32_t(spans_.size()); }
  /// True if a token has this id.
  bool has(int64_t id) const { return id >= 0 && id < size() && spans_[size_t(id)].size != absent; }
  /// Returns the text of an id for which has() is true.
  std::string_view text(int32_t id) const {
    const Span& span = spans_[size_t(id)];
    return std::string_view(bytes_).substr(span.begin, span.size);
  }

 private:
  static constexpr uint32_t absent = UINT32_MAX;
  struct Span {
    uint32_t begin = 0, size = absent;
  };
  std::string bytes_;
  std::vector<Span> spans_;
  StringTable ids_;
};

}  // namespace stretto::nn::tokenizers
