// The generated language, the split of a text, and the n-gram baseline.

#include <algorithm>
#include <cmath>

#include "examples/common/error.h"
#include "examples/text/corpus.h"
#include "examples/text/grammar.h"
#include "examples/text/lm_evaluation.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

using Tokens = std::vector<int64_t>;

}  // namespace

TEST_CASE("the generated language is the same for the same seed, and correctly nested",
          "[examples]") {
  const std::string text = generate_text(3, 50'000);
  CHECK(text == generate_text(3, 50'000));
  CHECK(generate_text(1, 1).starts_with("with mustos when ([{8 mustos"));  // with any compiler
  CHECK(text.substr(0, 300) != generate_text(4, 50'000).substr(0, 300));
  CHECK(text.size() >= 50'000);
  CHECK(text.substr(0, 60) == generate_text(3, 1).substr(0, 60));

  std::vector<std::string> open;
  std::string brackets;
  size_t deepest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first == "end") {
      REQUIRE(!open.empty());
      CHECK(second == open.back());
      open.pop_back();
    }
    if (!line.empty()) CHECK(indent == 2 * open.size());
    if (first == "with") open.push_back(second);
    deepest = std::max(deepest, open.size());
    for (char c : line) {
      if (c == '(' || c == '[' || c == '{') brackets += c;
      if (c != ')' && c != ']' && c != '}') continue;
      REQUIRE(!brackets.empty());
      CHECK(brackets.back() == (c == ')' ? '(' : char(c - 2)));
      brackets.pop_back();
    }
    CHECK(brackets.empty());
  }
  CHECK(open.empty());
  CHECK(deepest >= 4);
}

TEST_CASE("a text is split between characters, for word tokens between lines", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("t");
  const auto parts = [&](nn::TokenKind kind, double held_out) {
    const Corpus c = read_corpus({.data = path, .kind = kind, .held_out = held_out});
    const auto text = [&](const nn::TokenStream& t) { return c.tokenizer.decode(t.read()); };
    return std::pair(text(c.train), text(c.valid));
  };
  write_file(path, "0123456789");
  CHECK(parts(nn::TokenKind::bytes, 0.1) == std::pair<std::string, std::string>("012345678", "9"));
  write_file(path, "12345678\xC3\xA9");  // the split is inside the last character
  CHECK(parts(nn::TokenKind::chars, 0.1).first == "12345678");
  CHECK(parts(nn::TokenKind::chars, 0.1).second == "\uFFFD");
  CHECK(parts(nn::TokenKind::bytes, 0.1).second == "\xA9");
  write_file(path, "one two\nthree\nfour one\n");
  CHECK(parts(nn::TokenKind::words, 0.3) ==
        std::pair<std::string, std::string>("one two\nthree\n", "<unk> one\n"));
  CHECK(error_of<UsageError>([&] { parts(nn::TokenKind::words, 0.9); }) ==
        path + ": is too short to hold out 0.9 of it in whole lines");

  write_file(folder.file("v"), "two");
  const Corpus c =
      read_corpus({.data = path, .validation = folder.file("v"), .kind = nn::TokenKind::words});
  CHECK(c.train.size() == 8);
  CHECK(c.valid.size() == 2);
}

TEST_CASE("a text of one line is split between words", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("t");
  const auto parts = [&](double held_out) {
    const Corpus c =
        read_corpus({.data = path, .kind = nn::TokenKind::words, .held_out = held_out});
    return std::pair(c.train.size(), c.valid.size());
  };
  std::string words;
  for (int i = 0; i < 1000; ++i) words += i % 7 == 0 ? "one " : "two ";
  using Sizes = std::pair<int64_t, int64_t>;
  for (const char* end : {"", "\n", "\nx\n"}) {
    write_file(path, words + end);
    const int64_t last = std::string(end).size() > 1 ? 2 : 0;  // the tokens of the second line
    CHECK((parts(0.1) == Sizes(901, 101 + last)));             // both parts end in <eos>
  }
  // A title before one long line must not be the whole training text.
  write_file(path, "title\n" + words);
  CHECK(parts(0.1).first > 900);
  // A text that is mostly one word cannot be split.
  write_file(path, "a " + std::string(500, 'b') + " c");
  CHECK(error_of<UsageError>([&] { parts(0.1); }) ==
        path + ": is too short to hold out 0.1 of it in whole lines");
}

TEST_CASE("a byte order mark is not a token", "[examples]") {
  const TempDir folder;
  const std::string text = "The cat\nthe dog\nThe end\n", mark = "\xEF\xBB\xBF";
  write_file(folder.file("marked"), mark + text);
  write_file(folder.file("plain"), text);
  for (const nn::TokenKind kind :
       {nn::TokenKind::bytes, nn::TokenKind::chars, nn::TokenKind::words}) {
    const auto read = [&](const std::string& name, const std::string& validation) {
      return read_corpus({.data = folder.file(name), .validation = validation, .kind = kind});
    };
    for (const std::string& validation : {std::string(), folder.file("marked")}) {
      const Corpus marked = read("marked", validation), plain = read("plain", validation);
      CHECK(marked.tokenizer.to_note() == plain.tokenizer.to_note());
      CHECK(marked.train.size() == plain.train.size());
      CHECK(marked.valid.size() == plain.valid.size());
    }
  }
  write_file(folder.file("marked"), mark);
  CHECK(error_of<UsageError>([&] { read_corpus({.data = folder.file("marked")}); }) ==
        folder.file("marked") + ": is empty");
  write_file(folder.file("marked"), mark + "caf\xE9");
  CHECK(error_of<UsageError>([&] {
          read_corpus({.data = folder.file("marked"), .kind = nn::TokenKind::chars});
        }) == folder.file("marked") + ": is not UTF-8 at byte 6; --tokens bytes accepts any file");
}

TEST_CASE("a file that is not text is reported, but --tokens bytes accepts it", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("t.gz");
  write_file(path, "\x1F\x8B\x08 packed and packed");
  for (const nn::TokenKind kind : {nn::TokenKind::chars, nn::TokenKind::words})
    CHECK(error_of<UsageError>([&] { read_corpus({.data = path, .kind = kind}); }) ==
          path + ": is gzip-compressed; expected UTF-8 text; --tokens bytes accepts any file");
  CHECK(read_corpus({.data = path}).note ==
        path + " is gzip-compressed and is learned as raw bytes");
  write_file(path, "a text");
  CHECK(read_corpus({.data = path}).note.empty());
}

TEST_CASE("a vocabulary of other data than the generated text misses --data", "[examples]") {
  const nn::VocabularyTokenizer known = nn::VocabularyTokenizer::learn(nn::TokenKind::bytes, "abc");
  CHECK_THAT(error_of<UsageError>([&] { read_corpus({}, known); }),
             Containing("--data is missing: the generated text: ") &&
                 Containing(" is not in the vocabulary of the checkpoint"));
}

TEST_CASE("a mapped text needs little additional memory", "[examples]") {
  const TempDir folder;
  const std::string line = "the quick brown fox jumps over the lazy dog, again and again\n";
  constexpr int64_t lines = 400'000;
  {
    std::ofstream out(folder.file("t"), std::ios::binary);
    for (int64_t i = 0; i < lines; ++i) out << line;
  }
  const auto own_bytes = [] {
    const std::string status = read_file("/proc/self/status");
    const size_t at = status.find("RssAnon:");
    return at == std::string::npos ? -1 : std::stol(status.substr(at + 8)) * 1024;
  };
  if (own_bytes() < 0) STRETTO_SKIP("the system does not report RssAnon");
  const double size = double(lines) * double(line.size());
  for (const nn::TokenKind kind :
       {nn::TokenKind::bytes, nn::TokenKind::chars, nn::TokenKind::words}) {
    const long before = own_bytes();
    const Corpus corpus = read_corpus({.data = folder.file("t"), .kind = kind});
    int64_t sum = 0;
    corpus.train.each([&](int64_t token) { sum += token; });
    CHECK(sum > 0);
    // 1/32 of the text, a table of all characters, and memory cached by the allocator.
    CHECK(double(own_bytes() - before) < size / 32 + (8 << 20));
  }
}

TEST_CASE("the n-gram baseline follows its formula", "[examples]") {
  const std::vector<int64_t> train{0, 1, 0, 2, 0, 1};
  const CountingLoss loss = counting_loss(train, Tokens{0, 1, 2, 2}, 3);
  const double p0 = 4.0 / 9, p1 = 3.0 / 9, p2 = 2.0 / 9;
  CHECK(p0 + p1 + p2 == Approx(1));
  CHECK(loss.unigram == Approx(-(std::log(p1) + 2 * std::log(p2)) / 3));
  // After 0: 1 twice and 2 once, two different tokens; after 1: 0 once; after 2: 0 once.
  const double after0 = (2 + 2 * p1) / 5, after1 = (0 + 1 * p2) / 2, after2 = (0 + 1 * p2) / 2;
  CHECK(loss.bigram == Approx(-(std::log(after0) + std::log(after1) + std::log(after2)) / 3));
  // After a token that nothing has followed, the unigrams are used.
  const CountingLoss end = counting_loss(Tokens{0, 0, 1}, Tokens{1, 0}, 2);
  CHECK(end.bigram == Approx(-std::log(3.0 / 5)));
  CHECK(end.bigram == Approx(end.unigram));
  // In the background, or immediately for small texts.
  CountingInBackground counting;
  CHECK(!counting.known());
  counting.start(train, Tokens{0, 1, 2, 2}, 3);
  REQUIRE(counting.known());
  CHECK(counting.known()->bigram == loss.bigram);
  CHECK(counting.get().unigram == loss.unigram);
  CHECK(std::isnan(counting_loss(train, Tokens{0, 1}, 3, std::atomic<bool>(true)).bigram));
}

TEST_CASE("documents are separated by blank lines", "[examples]") {
  const std::string text = "\n\na b\nc\n \t\nd\n\n\n\ne";
  const auto documents = [&](nn::TokenKind kind) {
    const auto tokenizer = nn::VocabularyTokenizer::learn(kind, text);
    std::vector<std::string> all;
    for (const nn::TokenStream& t : documents_of(nn::TokenStream(tokenizer, text), tokenizer))
      all.push_back(tokenizer.decode(t.read()));
    return all;
  };
  const std::vector<std::string> expected{"a b\nc\n", "d\n", "e"};
  CHECK(documents(nn::TokenKind::bytes) == expected);
  CHECK(documents(nn::TokenKind::chars) == expected);
  CHECK(documents(nn::TokenKind::words).size() == 3);
  CHECK(documents(nn::TokenKind::words)[1] == "d\n");
}
