// The tokens of a text, which may be larger than the memory.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer.h"

namespace stretto::nn {

/// A sequence of tokens, stored as ids of four bytes each. The text of a VocabularyTokenizer is
/// stored instead, and encoded on every read: if it is mapped, it needs no memory for bytes, and 8
/// bytes per 256 tokens, at most 1/32 of the text, for chars and words. A handle: copies share the
/// content.
class TokenStream {
 public:
  /// An empty stream.
  TokenStream() = default;
  /// A stream of these ids. Throws Error for an id that is no int32.
  TokenStream(const std::vector<int64_t>& ids);  // NOLINT: implicit
  /// A stream that owns its text.
  TokenStream(const Tokenizer& tokenizer, std::string text);
  /// A stream over `text`, which lives as long as `owner` (e.g. a mapped file). Throws Error for a
  /// byte that is not in the vocabulary.
  TokenStream(const Tokenizer& tokenizer, std::string_view text, std::shared_ptr<const void> owner);

  /// Returns the number of tokens.
  int64_t size() const { return size_; }
  /// Returns a stream of the tokens `begin` … `end` − 1. Throws Error if the range is invalid.
  TokenStream slice(int64_t begin, int64_t end) const;

  /// Returns tokens `begin` … `begin` + `n` − 1. Throws Error if the range is invalid.
  std::vector<int64_t> read(int64_t begin, int64_t n) const;
  /// Returns all tokens.
  std::vector<int64_t> read() const { return read(0, size_); }
  /// Writes these tokens to `to`.
  void read(int64_t begin, int64_t n, int64_t* to) const;

  /// Calls f with every token, in order.
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
  void check_range(int64_t begin, int64_t n) const;

  struct Source;
  std::shared_ptr<const Source> source_;
  int64_t begin_ = 0, size_ = 0;
};

}  // namespace stretto::nn
