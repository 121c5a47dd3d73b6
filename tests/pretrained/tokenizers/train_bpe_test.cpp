// Training of byte-pair encodings.
#include "pretrained/tokenizers/train_bpe.h"

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;
using Ids = std::vector<int64_t>;

TEST_CASE("BPE merges the most frequent pair, the smallest of equal ones", "[tokenizers]") {
  // Pairs: l o 7, o w 7, then lo w 7; e r 3; " " lo…
  const nn::WordCounts words{{"low", 5}, {"lower", 2}, {"er", 1}};
  const auto tokenizer = nn::train_bpe(words, {.vocabulary = 260, .special_tokens = {"<end>"}});
  CHECK(tokenizer.size() == 260);
  CHECK(tokenizer.token(257) == "lo");
  CHECK(tokenizer.token(258) == "low");
  CHECK(tokenizer.token(259) == "er");
  CHECK(tokenizer.encode("lower<end>") == Ids{258, 259, 0});
  CHECK(tokenizer.eos() == 0);
}

TEST_CASE("training stops when pairs are rare, and reports progress", "[tokenizers]") {
  std::vector<std::pair<int64_t, int64_t>> calls;
  const auto tokenizer = nn::train_bpe(
      "abab cd",
      {.vocabulary = 1000, .progress = [&](int64_t n, int64_t of) { calls.emplace_back(n, of); }});
  CHECK(tokenizer.size() == 257);  // "ab" occurs twice
  CHECK(tokenizer.encode("abab") == Ids{256, 256});
  CHECK(calls == std::vector<std::pair<int64_t, int64_t>>{{1, 744}});
  CHECK(nn::train_bpe("abab cd", {.vocabulary = 1000, .min_count = 1}).size() ==
        260);  // "abab", "cd", " cd"
}

TEST_CASE("words are counted as GPT-2 splits them", "[tokenizers]") {
  const nn::WordCounts want{{" a", 2}, {"!", 1}, {"a", 1}};
  CHECK(nn::count_words("a a a!") == want);
  CHECK(nn::count_words("12", nn::WordSplit::smollm) == nn::WordCounts{{"1", 1}, {"2", 1}});
}

TEST_CASE("merges of integer tokens are lossless", "[tokenizers]") {
  const std::vector<Ids> music{{60, 64, 67, 60, 64, 67}, {60, 64, 60, 64}};
  const auto merges = nn::TokenMerges::learn(music, 128, 10);
  REQUIRE(merges.pairs().size() >= 2);
  CHECK(merges.pairs()[0] == std::pair<int64_t, int64_t>(60, 64));
  CHECK(merges.encode(music[0]) == Ids{129, 129});
  for (const Ids& sequence : music) CHECK(merges.decode(merges.encode(sequence)) == sequence);
  CHECK(nn::TokenMerges(128, merges.pairs()).encode(music[1]) == merges.encode(music[1]));
  CHECK(merges.encode({}) == Ids{});
}

TEST_CASE("training refuses what it cannot use", "[tokenizers]") {
  CHECK_THAT(
      testing::error_of<Error>([] { nn::train_bpe("a", {.vocabulary = 255}); }),
      Containing(
          "[train_bpe] a vocabulary of 255 tokens; must be 256 (special tokens and bytes) to "));
  CHECK_THAT(testing::error_of<Error>([] {
               nn::train_bpe("a", {.special_tokens = {"<e>", "<e>"}});
             }),
             Containing("the special token \"<e>\" occurs twice"));
  CHECK_THAT(testing::error_of<Error>([] {
               nn::TokenMerges::learn({{1, 9}}, 9, 1);
             }),
             Containing("[train_bpe] the token 9; must be 0 to 8"));
  CHECK_THAT(testing::error_of<Error>([] {
               nn::TokenMerges(4, {{0, 4}});
             }),
             Containing("the merge 0 of the tokens 0 and 4; must be 0 to 3"));
}
