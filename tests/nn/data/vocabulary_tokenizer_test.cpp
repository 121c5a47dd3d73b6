// Bytes, characters and words as tokens.
#include "nn/data/vocabulary_tokenizer.h"

#include "core/error.h"
#include "core/utf8.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

std::string round_trip(const nn::Tokenizer& t, const std::string& text) {
  return t.decode(t.encode(text));
}

}  // namespace

TEST_CASE("all bytes survive encoding and decoding", "[tokenizer]") {
  std::string all;
  for (int i = 255; i >= 0; --i) all += char(i);
  const auto t = nn::VocabularyTokenizer::learn(nn::TokenKind::bytes, all + all);
  CHECK(t.size() == 256);
  CHECK(t.encode(all)[0] == 255);  // sorted
  CHECK(round_trip(t, all) == all);
  const auto few = nn::VocabularyTokenizer::learn(nn::TokenKind::bytes, "banana");
  CHECK(few.encode("nab") == std::vector<int64_t>{2, 0, 1});
  CHECK(error_of<Error>([&] { few.encode("bat"); }) ==
        "[Tokenizer] byte 0x74 ('t') is not in the vocabulary");
  CHECK(error_of<Error>([&] { few.encode("\xFF"); }) ==
        "[Tokenizer] byte 0xFF is not in the vocabulary");
}

TEST_CASE("chars are code points, and all unknown characters share one token", "[tokenizer]") {
  const std::string text = "na\u00efve \u4e16\u754c \U0001F3B5!";
  const auto t = nn::VocabularyTokenizer::learn(nn::TokenKind::chars, text);
  CHECK(t.encode(text).size() == 11);
  CHECK(t.size() == 11);  // the blank occurs twice
  CHECK(round_trip(t, text) == text);
  CHECK(round_trip(t, "nix") == "n\uFFFD\uFFFD");
  CHECK(t.encode("i") == std::vector<int64_t>{10});
}

TEST_CASE("words are sorted by frequency, and every line ends with <eos>", "[tokenizer]") {
  const std::string text = "the cat\n\n the  dog\tsaw the cat\nend";
  const auto t = nn::VocabularyTokenizer::learn(nn::TokenKind::words, text);
  CHECK(round_trip(t, text) == "the cat\n\nthe dog saw the cat\nend\n");
  // <eos> the cat dog saw end <unk>
  CHECK(t.encode("the cat dog saw end cow") == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 0});
  CHECK(t.size() == 7);
  CHECK(t.encode("") == std::vector<int64_t>{});
  CHECK(t.encode(" \n") == std::vector<int64_t>{0});
  CHECK(t.encode("dog ") == std::vector<int64_t>{3, 0});

  const auto limited = nn::VocabularyTokenizer::learn(nn::TokenKind::words, text, 4);
  CHECK(limited.size() == 4);
  CHECK(limited.encode("the cat dog") == std::vector<int64_t>{1, 2, 3, 0});
  // A text that contains <unk> itself, as the published ones do, adds no second one.
  const auto marked = nn::VocabularyTokenizer::learn(nn::TokenKind::words, "a <unk> <unk> b");
  CHECK(marked.encode("z a") == std::vector<int64_t>{1, 2, 0});
  CHECK(marked.size() == 4);
}

TEST_CASE("a vocabulary survives its serialization", "[tokenizer]") {
  const std::string text = "a b\xC3\xA9 \"c\"\\\n\tb";
  for (const nn::TokenKind kind :
       {nn::TokenKind::bytes, nn::TokenKind::chars, nn::TokenKind::words}) {
    const auto t = nn::VocabularyTokenizer::learn(kind, text);
    const auto again = nn::VocabularyTokenizer::from_note(kind, t.to_note());
    CHECK(again.size() == t.size());
    CHECK(again.encode(text) == t.encode(text));
    CHECK(again.to_note() == t.to_note());
  }
  const auto refused = [](nn::TokenKind kind, const std::string& note) {
    return error_of<Error>([&] { nn::VocabularyTokenizer::from_note(kind, note); });
  };
  CHECK(refused(nn::TokenKind::bytes, "612") ==
        "[Tokenizer] malformed vocabulary: an odd number of hexadecimal digits");
  CHECK(refused(nn::TokenKind::bytes, "6x") ==
        "[Tokenizer] malformed vocabulary: \"6x\" is not a byte");
  CHECK(refused(nn::TokenKind::bytes, "6161") ==
        "[Tokenizer] malformed vocabulary: \"a\" occurs twice");
  CHECK(refused(nn::TokenKind::bytes, "") == "[Tokenizer] malformed vocabulary: it is empty");
  CHECK(refused(nn::TokenKind::chars, "ab") ==
        "[Tokenizer] malformed vocabulary: it has no token for unknown pieces");
  CHECK(refused(nn::TokenKind::words, "a\nb\n") ==
        "[Tokenizer] malformed vocabulary: it has no token for unknown pieces");
}

TEST_CASE("invalid UTF-8 is detected", "[tokenizer]") {
  CHECK(find_invalid_utf8("").at == 0);
  const std::string good =
      "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBF"
      "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF";
  CHECK(find_invalid_utf8(good).at == good.size());
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3",
                          "\xE4\xB8", "\xF0\x9F\x8E", "\xC3(", "\xFF"})
    CHECK(find_invalid_utf8(std::string("ok") + bad).at == 2);
}

TEST_CASE("tokens outside the vocabulary, and a limit too small for <eos> and <unk>, are errors",
          "[tokenizer]") {
  for (const nn::TokenKind kind :
       {nn::TokenKind::bytes, nn::TokenKind::chars, nn::TokenKind::words}) {
    const auto t = nn::VocabularyTokenizer::learn(kind, "a b");
    const int64_t n = t.size();
    for (const int64_t token : {int64_t(-1), n, int64_t(1) << 40})
      CHECK_THROWS_WITH(t.decode({0, token}),
                        str("[Tokenizer] token ", token, "; must be 0 to ", n - 1));
    CHECK_NOTHROW(t.decode({0, n - 1}));
  }
  for (const int64_t limit : {-1, 1})
    CHECK_THROWS_WITH(nn::VocabularyTokenizer::learn(nn::TokenKind::words, "a b c", limit),
                      str("[Tokenizer] a limit of ", limit,
                          " words; must be at least 2, <eos> and <unk>, or 0 for no limit"));
  for (const int64_t limit : {2, 3, 5})
    CHECK(nn::VocabularyTokenizer::learn(nn::TokenKind::words, "a b c", limit).size() == limit);
}
