// Token streams that encode their text when they are read.
#include "nn/data/token_stream.h"

#include <algorithm>

#include "core/error.h"
#include "nn/data/vocabulary_tokenizer.h"
#include "tests/support/catch.h"

using namespace stretto;  // NOLINT
using Tokens = std::vector<int64_t>;

namespace {

struct SizeAndSeven : nn::Tokenizer {
  int64_t size() const override { return 8; }
  Tokens encode(std::string_view text) const override { return {int64_t(text.size()), 7}; }
  std::string decode(const Tokens&) const override { return ""; }
};

}  // namespace

TEST_CASE("a token stream encodes its text wherever it is read", "[token_stream]") {
  const std::string text = "one two  three\n\n four\tfive \u00e9\u4e16 six\nseven";
  std::string all;
  for (int i = 0; i < 100; ++i) all += text.substr(0, text.size() - size_t(i % 7 == 0 ? 5 : 0));
  for (const char* ending : {"", " ", "\n", "\n ", "x"}) {
    const std::string whole = all + ending;
    for (const nn::TokenKind kind :
         {nn::TokenKind::bytes, nn::TokenKind::chars, nn::TokenKind::words}) {
      const auto t = nn::VocabularyTokenizer::learn(kind, whole);
      const Tokens expected = t.encode(whole);
      const nn::TokenStream stream(t, whole, nullptr);
      const int64_t size = int64_t(expected.size());
      REQUIRE(stream.size() == size);
      Tokens seen;
      stream.each([&](int64_t token) { seen.push_back(token); });
      CHECK(seen == expected);
      for (int64_t begin = 0; begin <= size; begin += 97)
        for (const int64_t n : {int64_t(0), int64_t(1), int64_t(300), size}) {
          const int64_t end = std::min(begin + n, size);
          const Tokens part(expected.begin() + begin, expected.begin() + end);
          CHECK(stream.read(begin, end - begin) == part);
          CHECK(stream.slice(begin, size).read(0, end - begin) == part);
        }
      CHECK(stream.slice(3, 20).slice(2, 10).read(0, 8) == stream.read(5, 8));
      CHECK_THROWS_AS(stream.read(size, 1), Error);
      CHECK_THROWS_AS(stream.read(INT64_MAX, 1), Error);
      CHECK_THROWS_AS(stream.slice(2, size + 1), Error);
      CHECK_THROWS_AS(stream.slice(0, 4).slice(2, 1), Error);
      CHECK_THROWS_AS(stream.slice(0, 4).read(2, 3), Error);
    }
  }
}

TEST_CASE("a token stream takes any tokenizer, and any ids that fit in 32 bits", "[token_stream]") {
  CHECK(nn::TokenStream(SizeAndSeven(), "four").read() == Tokens{4, 7});
  CHECK(nn::TokenStream(Tokens{-100, INT32_MAX}).read() == Tokens{-100, INT32_MAX});
  CHECK_THROWS_WITH(nn::TokenStream(Tokens{5, int64_t(1) << 31}),
                    "[TokenStream] token 2147483648; must fit in 32 bits");
}
