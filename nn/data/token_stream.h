// The tokens of a text, which may be larger than the memory.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer.h"

namespace stretto::nn {

/// A sequence of tokens, stored as ids or encoded from its text on every read. A handle: copies
/// share the content. For a mapped text it needs no memory for bytes, and 8 bytes per 256 tokens,
/// at most 1/32 of the text, for chars and words.
class TokenStream {
 public:
  /// An empty stream.
  TokenStream() = default;
  /// A stream of these ids.
  TokenStream(std::vector<int32_t> tokens);  // NOLINT: implicit
  /// A stream that owns its text.
  TokenStream(Tokenizer tokenizer, std::string text);
  /// A stream over `text`, which lives as long as `owner` (e.g. a mapped file). Throws Error for a
  /// byte that is not in the vocabulary.
  TokenStream(Tokenizer tokenizer, std::string_view text, std::shared_ptr<const void> owner);

  /// Returns the number of tokens.
  int64_t size() const { return size_; }
  /// Returns a stream of the first n tokens.
  TokenStream first(int64_t n) const;

  /// Writes tokens `begin` … `begin` + `n` − 1 to `to`. Throws Error if the range is invalid.
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
  struct Source;
  std::shared_ptr<const Source> source_;
  int64_t size_ = 0;
};

}  // namespace stretto::nn
