#include "nn/data/token_stream.h"

#include <optional>

#include "core/error.h"

namespace stretto::nn {

constexpr int64_t index_step = 256;

struct TokenStream::Source {
  // Either ids,
  std::vector<int32_t> tokens;
  // or a text and its tokenizer.
  std::optional<Tokenizer> tokenizer;
  std::string_view text;
  std::shared_ptr<const void> owner;
  std::vector<size_t> index;  // offset in the text of every 256th token; empty for bytes
};

TokenStream::TokenStream(std::vector<int32_t> tokens) : size_(int64_t(tokens.size())) {
  source_ = std::make_shared<Source>(Source{std::move(tokens), {}, {}, {}, {}});
}

TokenStream::TokenStream(Tokenizer tokenizer, std::string text) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  *this = TokenStream(std::move(tokenizer), *owner, owner);
}

TokenStream::TokenStream(Tokenizer tokenizer, std::string_view text,
                         std::shared_ptr<const void> owner) {
  std::vector<size_t> index;
  if (tokenizer.kind() == TokenKind::bytes) {
    const std::array<int32_t, 256> tokens = tokenizer.of_bytes();
    for (const char c : text)
      if (tokens[uint8_t(c)] < 0) refuse_byte(c);
    size_ = int64_t(text.size());
  } else {
    PieceReader reader(tokenizer.kind(), text);
    for (;; ++size_) {
      const size_t at = reader.offset();
      std::string_view piece;
      if (!reader.next(piece)) break;
      if (size_ % index_step == 0) index.push_back(at);
    }
  }
  source_ = std::make_shared<Source>(
      Source{{}, std::move(tokenizer), text, std::move(owner), std::move(index)});
}

TokenStream TokenStream::first(int64_t n) const {
  TokenStream result = *this;
  result.size_ = std::min(n, size_);
  return result;
}

void TokenStream::read(int64_t begin, int64_t n, int64_t* to) const {
  check(begin >= 0 && n >= 0 && begin <= size_ - n, "TokenStream", "cannot read ", n,
        " tokens from position ", begin, "; the stream has ", size_, " tokens");
  if (n == 0) return;
  const Source& s = *source_;
  if (!s.tokenizer) {
    std::copy_n(s.tokens.begin() + begin, n, to);
    return;
  }
  const Tokenizer& token = *s.tokenizer;
  if (token.kind() == TokenKind::bytes) {
    const std::array<int32_t, 256> tokens = token.of_bytes();
    for (int64_t i = 0; i < n; ++i) to[i] = tokens[uint8_t(s.text[size_t(begin + i)])];
    return;
  }
  PieceReader reader(token.kind(), s.text, s.index[size_t(begin / index_step)]);
  std::string_view piece;
  for (int64_t i = begin / index_step * index_step; i < begin; ++i) reader.next(piece);
  for (int64_t i = 0; i < n; ++i) {
    reader.next(piece);
    to[i] = token(piece);
  }
}

}  // namespace stretto::nn
