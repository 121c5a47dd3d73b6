// The tokens of a text that may be larger than the memory.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer.h"

namespace stretto::nn {

/// Tokens in a row, held as numbers or made from their text whenever they are read. A handle:
/// copies share them. Memory for a text that is mapped: none for bytes; for chars and words 8 bytes
/// for every 256 tokens, which is at most 1/32 of its size.
class TokenStream {
 public:
  TokenStream() = default;
  TokenStream(std::vector<int32_t> tokens);  // NOLINT: they are a stream
  /// Of a text that is kept.
  TokenStream(Tokenizer tokenizer, std::string text);
  /// Of `text`, which lives as long as `owner` (a mapped file). Throws Error for a byte that is not
  /// in the vocabulary.
  TokenStream(Tokenizer tokenizer, std::string_view text, std::shared_ptr<const void> owner);

  int64_t size() const { return size_; }
  /// The first n of them.
  TokenStream first(int64_t n) const;

  /// Writes the tokens `begin` … `begin` + `n` - 1, which must be there.
  void read(int64_t begin, int64_t n, int64_t* to) const;

  /// Calls f with every token.
  template <class F>
  void each(F&& f) const {
    std::vector<int64_t> block(size_t(std::min<int64_t>(size_, 1 << 14)));
    for (int64_t begin = 0; begin < size_; begin += int64_t(block.size())) {
      const int64_t n = std::min(int64_t(block.size()), size_ - begin);
      read(begin, n, block.data());
      for (int64_t i = 0; i < n; ++i) f(block[size_t(i)]);
    }
  }

 private:
  struct Source;
  std::shared_ptr<const Source> source_;
  int64_t size_ = 0;
};

}  // namespace stretto::nn
