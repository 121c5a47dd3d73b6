#include "nn/data/token_stream.h"

#include <optional>

#include "core/error.h"
#include "nn/data/vocabulary_tokenizer.h"

namespace stretto::nn {

constexpr int64_t index_step = 256;

struct TokenStream::Source {
  // Either ids,
  std::vector<int32_t> ids;
  // or a text and its tokenizer.
  std::optional<VocabularyTokenizer> tokenizer;
  std::string_view text;
  std::shared_ptr<const void> owner;
  std::vector<size_t> index;  // offset in the text of every 256th token; empty for bytes
};

TokenStream::TokenStream(const std::vector<int64_t>& ids) : size_(int64_t(ids.size())) {
  for (const int64_t id : ids)
    check(id == int32_t(id), "TokenStream", "token ", id, "; must fit in 32 bits");
  source_ = std::make_shared<Source>(Source{{ids.begin(), ids.end()}, {}, {}, {}, {}});
}

TokenStream::TokenStream(const Tokenizer& tokenizer, std::string text) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  *this = TokenStream(tokenizer, *owner, owner);
}

TokenStream::TokenStream(const Tokenizer& tokenizer, std::string_view text,
                         std::shared_ptr<const void> owner) {
  const auto* pieces = dynamic_cast<const VocabularyTokenizer*>(&tokenizer);
  if (!pieces) {
    *this = TokenStream(tokenizer.encode(text));
    return;
  }
  std::vector<size_t> index;
  if (pieces->kind() == TokenKind::bytes) {
    const std::array<int64_t, 256>& ids = pieces->of_bytes();
    for (const char c : text)
      if (ids[uint8_t(c)] < 0) refuse_byte(c);
    size_ = int64_t(text.size());
  } else {
    PieceReader reader(pieces->kind(), text);
    for (;; ++size_) {
      const size_t at = reader.offset();
      std::string_view piece;
      if (!reader.next(piece)) break;
      if (size_ % index_step == 0) index.push_back(at);
    }
  }
  source_ = std::make_shared<Source>(Source{{}, *pieces, text, std::move(owner), std::move(index)});
}

void TokenStream::check_range(int64_t begin, int64_t n) const {
  check(begin >= 0 && n >= 0 && begin <= size_ - n, "TokenStream", "cannot read ", n,
        " tokens from position ", begin, "; the stream has ", size_, " tokens");
}

TokenStream TokenStream::slice(int64_t begin, int64_t end) const {
  check_range(begin, end - begin);
  TokenStream result = *this;
  result.begin_ += begin;
  result.size_ = end - begin;
  return result;
}

std::vector<int64_t> TokenStream::read(int64_t begin, int64_t n) const {
  check_range(begin, n);
  std::vector<int64_t> ids(size_t(n), 0);
  read(begin, n, ids.data());
  return ids;
}

void TokenStream::read(int64_t begin, int64_t n, int64_t* to) const {
  check_range(begin, n);
  if (n == 0) return;
  begin += begin_;
  const Source& s = *source_;
  if (!s.tokenizer) {
    std::copy_n(s.ids.begin() + begin, n, to);
    return;
  }
  const VocabularyTokenizer& tokenizer = *s.tokenizer;
  if (tokenizer.kind() == TokenKind::bytes) {
    const std::array<int64_t, 256>& ids = tokenizer.of_bytes();
    for (int64_t i = 0; i < n; ++i) to[i] = ids[uint8_t(s.text[size_t(begin + i)])];
    return;
  }
  PieceReader reader(tokenizer.kind(), s.text, s.index[size_t(begin / index_step)]);
  std::string_view piece;
  for (int64_t i = begin / index_step * index_step; i < begin; ++i) reader.next(piece);
  for (int64_t i = 0; i < n; ++i) {
    reader.next(piece);
    to[i] = tokenizer.id(piece);
  }
}

}  // namespace stretto::nn
