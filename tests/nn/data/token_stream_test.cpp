// Token streams that encode their text when they are read.
#include "nn/data/token_stream.h"

#include <algorithm>

#include "core/error.h"
#include "tests/support/catch.h"

using namespace stretto;  // NOLINT
using Tokens = std::vector<int32_t>;

TEST_CASE("a token stream encodes its text wherever it is read", "[token_stream]") {
  const std::string text = "one two  three\n\n four\tfive \u00e9\u4e16 six\nseven";
  std::string all;
  for (int i = 0; i < 100; ++i) all += text.substr(0, text.size() - size_t(i % 7 == 0 ? 5 : 0));
  for (const char* ending : {"", " ", "\n", "\n ", "x"}) {
    const std::string whole = all + ending;
    for (const nn::TokenKind kind :
         {nn::TokenKind::bytes, nn::TokenKind::chars, nn::TokenKind::words}) {
      const nn::Tokenizer t = nn::Tokenizer::learn(kind, whole);
      const Tokens expected = t.encode(whole);
      const nn::TokenStream stream(t, whole, nullptr);
      const int64_t size = int64_t(expected.size());
      REQUIRE(stream.size() == size);
      Tokens seen;
      stream.each([&](int64_t token) { seen.push_back(int32_t(token)); });
      CHECK(seen == expected);
      for (int64_t begin = 0; begin <= size; begin += 97)
        for (const int64_t n : {int64_t(0), int64_t(1), int64_t(300), size}) {
          std::vector<int64_t> part(size_t(std::min(n, size - begin)));
          stream.read(begin, int64_t(part.size()), part.data());
          CHECK(std::equal(part.begin(), part.end(), expected.begin() + begin));
        }
      CHECK(stream.first(10).size() == 10);
      CHECK(stream.first(INT64_MAX).size() == size);
      int64_t none = 0;
      CHECK_THROWS_AS(stream.read(size, 1, &none), Error);
      CHECK_THROWS_AS(stream.read(INT64_MAX, 1, &none), Error);
    }
  }
}
