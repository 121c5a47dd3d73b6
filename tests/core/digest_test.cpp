// XXH64 against its published values.
#include "core/digest.h"

#include <string>

#include "tests/support/catch.h"

using stretto::Digest;

namespace {

std::string digest(const std::string& text) {
  Digest d;
  d.add(text.data(), int64_t(text.size()));
  return d.text();
}

}  // namespace

TEST_CASE("the digest is XXH64") {
  CHECK(digest("") == "ef46db3751d8e999");
  CHECK(digest("a") == "d24ec4f1a98c6e5b");
  CHECK(digest("abc") == "44bc2cf5ad770999");
  CHECK(digest("Nobody inspects the spammish repetition") == "fbcea83c8a378bf1");
}

TEST_CASE("the digest does not depend on how the data is cut into chunks") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += char(i * 37 % 251);
  const std::string whole = digest(text);
  for (size_t piece : {1, 3, 7, 8, 31, 32, 33, 64, 100}) {
    Digest d;
    for (size_t at = 0; at < text.size(); at += piece)
      d.add(text.data() + at, int64_t(std::min(piece, text.size() - at)));
    CHECK(d.text() == whole);
  }
  for (size_t n = 0; n < 100; ++n) {
    Digest d;
    d.add(text.data(), int64_t(n / 3));
    d.add(text.data() + n / 3, int64_t(n - n / 3));
    CHECK(d.text() == digest(text.substr(0, n)));
  }
}
