// The models of tokenizers against their definitions, and the cache of words.
#include <map>
#include <string>
#include <vector>

#include "pretrained/tokenizers/models/word_cache.h"
#include "pretrained/tokenizers/subword_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using Ids = std::vector<int64_t>;

namespace {

nn::SubwordTokenizer from_json(const std::string& json) {
  const testing::TempDir folder;
  testing::write_file(folder.file("tokenizer.json"), json);
  return nn::SubwordTokenizer::load(folder.file("tokenizer.json"));
}

}  // namespace

TEST_CASE("BPE applies the first of the merges with the lowest rank, in long words too",
          "[tokenizers]") {
  const std::vector<std::string> merges{"a a", "b a", "aa b", "a b", "ba ba", "aab aa", "b b"};
  std::map<std::string, int64_t> ids{{"a", 0}, {"b", 1}};
  std::string vocabulary = R"("a":0,"b":1)", list;
  for (const std::string& merge : merges) {
    std::string token = merge;
    token.erase(token.find(' '), 1);
    vocabulary += ",\"" + token + "\":" + std::to_string(ids.size());
    ids.emplace(token, int64_t(ids.size()));
    list += (list.empty() ? "\"" : ",\"") + merge + '"';
  }
  const auto tokenizer = from_json(R"({"model":{"type":"BPE","vocab":{)" + vocabulary +
                                   R"(},"merges":[)" + list + "]}}");
  uint64_t random = 1;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::string> symbols;
    for (int i = 0; i < 1 + trial / 3; ++i) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      symbols.emplace_back(random >> 63 ? "a" : "b");
    }
    std::string word;
    for (const std::string& s : symbols) word += s;
    for (bool merged = true; merged;) {
      merged = false;
      for (const std::string& merge : merges) {
        for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i)
          if (symbols[i] + " " + symbols[i + 1] == merge) {
            symbols[i] += symbols[i + 1];
            symbols.erase(symbols.begin() + int64_t(i) + 1);
            merged = true;
          }
        if (merged) break;
      }
    }
    Ids want;
    for (const std::string& s : symbols) want.push_back(ids.at(s));
    REQUIRE(tokenizer.encode(word) == want);
  }
}

TEST_CASE("a word of the longest length is known, and cached words are compared", "[tokenizers]") {
  const auto tokenizer =
      from_json(R"({"model":{"type":"WordPiece","unk_token":"?","max_input_chars_per_word":3,)"
                R"("vocab":{"?":0,"a":1,"##a":2}}})");
  CHECK(tokenizer.encode("aaa") == Ids{1, 2, 2});
  CHECK(tokenizer.encode("aaaa") == Ids{0});
  nn::tokenizers::WordCache cache;
  const int64_t id = 5;
  cache.add("abc", 7, &id, 1);
  Ids found;
  CHECK_FALSE(cache.find("abd", 7, found));
  CHECK(cache.find("abc", 7, found));
}

// The package `tokenizers` panics at the second text.
TEST_CASE("an added token has no white space that the token before it took", "[tokenizers]") {
  const auto tokenizer = from_json(
      R"({"added_tokens":[{"id":1,"content":"<a>","rstrip":true},{"id":2,"content":"  ","lstrip":true},)"
      R"({"id":3,"content":" <b>","lstrip":true}],"model":{"type":"BPE","vocab":{"x":0},"merges":[]}})");
  CHECK(tokenizer.encode("<a> <b>x") == Ids{1, 3, 0});
  CHECK(tokenizer.encode("<a>    x") == Ids{1, 0});
  CHECK(tokenizer.encode("x    x") == Ids{0, 2, 2, 0});
}
