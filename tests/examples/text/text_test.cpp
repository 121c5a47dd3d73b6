// Tokenisers, the made-up language, the split, segments and counting.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "examples/common/error.h"
#include "examples/text/corpus.h"
#include "examples/text/grammar.h"
#include "examples/text/lm_evaluation.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

using Tokens = std::vector<int32_t>;

std::string round_trip(const Tokenizer& t, const std::string& text) {
  const std::vector<int32_t> tokens = t.encode(text);
  return t.decode({tokens.begin(), tokens.end()});
}

std::vector<int32_t> counting(int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(i);
  return tokens;
}

}  // namespace

TEST_CASE("bytes come back, whatever they are", "[examples]") {
  std::string all;
  for (int i = 255; i >= 0; --i) all += char(i);
  const Tokenizer t = Tokenizer::learn(TokenKind::bytes, all + all);
  CHECK(t.size() == 256);
  CHECK(t.encode(all)[0] == 255);  // sorted
  CHECK(round_trip(t, all) == all);
  const Tokenizer few = Tokenizer::learn(TokenKind::bytes, "banana");
  CHECK(few.encode("nab") == std::vector<int32_t>{2, 0, 1});
  CHECK(error_of<UsageError>([&] { few.encode("bat"); }) ==
        "byte 0x74 ('t') is not in the vocabulary");
  CHECK(error_of<UsageError>([&] { few.encode("\xFF"); }) == "byte 0xFF is not in the vocabulary");
}

TEST_CASE("chars are code points, and one token for all others", "[examples]") {
  const std::string text = "na\u00efve \u4e16\u754c \U0001F3B5!";
  const Tokenizer t = Tokenizer::learn(TokenKind::chars, text);
  CHECK(t.encode(text).size() == 11);
  CHECK(t.size() == 11);  // the blank is there twice
  CHECK(round_trip(t, text) == text);
  CHECK(round_trip(t, "nix") == "n\uFFFD\uFFFD");
  CHECK(t.encode("i") == std::vector<int32_t>{10});
}

TEST_CASE("words are sorted by frequency, and every line ends", "[examples]") {
  const std::string text = "the cat\n\n the  dog\tsaw the cat\nend";
  const Tokenizer t = Tokenizer::learn(TokenKind::words, text);
  CHECK(round_trip(t, text) == "the cat\n\nthe dog saw the cat\nend\n");
  // <eos> the cat dog saw end <unk>
  CHECK(t.encode("the cat dog saw end cow") == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 0});
  CHECK(t.size() == 7);
  CHECK(t.encode("") == std::vector<int32_t>{});
  CHECK(t.encode(" \n") == std::vector<int32_t>{0});
  CHECK(t.encode("dog ") == std::vector<int32_t>{3, 0});

  const Tokenizer limited = Tokenizer::learn(TokenKind::words, text, 4);
  CHECK(limited.size() == 4);
  CHECK(limited.encode("the cat dog") == std::vector<int32_t>{1, 2, 3, 0});
  // A text that has <unk> of its own, as the published ones do: no second one.
  const Tokenizer marked = Tokenizer::learn(TokenKind::words, "a <unk> <unk> b");
  CHECK(marked.encode("z a") == std::vector<int32_t>{1, 2, 0});
  CHECK(marked.size() == 4);
}

TEST_CASE("a vocabulary survives its note", "[examples]") {
  const std::string text = "a b\xC3\xA9 \"c\"\\\n\tb";
  for (const TokenKind kind : {TokenKind::bytes, TokenKind::chars, TokenKind::words}) {
    const Tokenizer t = Tokenizer::learn(kind, text);
    const Tokenizer again = Tokenizer::from_note(kind, t.to_note());
    CHECK(again.size() == t.size());
    CHECK(again.encode(text) == t.encode(text));
    CHECK(again.to_note() == t.to_note());
  }
  const auto refused = [](TokenKind kind, const std::string& note) {
    return error_of<UsageError>([&] { Tokenizer::from_note(kind, note); });
  };
  CHECK(refused(TokenKind::bytes, "612") ==
        "malformed vocabulary: an odd number of hexadecimal digits");
  CHECK(refused(TokenKind::bytes, "6x") == "malformed vocabulary: \"6x\" is no byte");
  CHECK(refused(TokenKind::bytes, "6161") == "malformed vocabulary: \"a\" is in it twice");
  CHECK(refused(TokenKind::bytes, "") == "malformed vocabulary: it is empty");
  CHECK(refused(TokenKind::chars, "ab") ==
        "malformed vocabulary: nothing stands for what is unknown");
  CHECK(refused(TokenKind::words, "a\nb\n") ==
        "malformed vocabulary: nothing stands for what is unknown");
}

TEST_CASE("what is not UTF-8 is found", "[examples]") {
  CHECK(invalid_utf8("") == -1);
  CHECK(invalid_utf8("\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBF"
                     "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF") == -1);
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3",
                          "\xE4\xB8", "\xF0\x9F\x8E", "\xC3(", "\xFF"}) {
    CHECK(invalid_utf8(std::string("ok") + bad) == 2);
  }
}

TEST_CASE("the made-up language is the same for a seed, and well nested", "[examples]") {
  const std::string text = generate_text(3, 50'000);
  CHECK(text == generate_text(3, 50'000));
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

TEST_CASE("a text is split at a character, and for words at a line", "[examples]") {
  const TempDir folder;
  const std::string path = folder.file("t");
  const auto parts = [&](TokenKind kind, double held_out) {
    const Corpus c = read_corpus({.data = path, .kind = kind, .held_out = held_out});
    const auto text = [&](const TokenStream& t) {
      std::vector<int64_t> tokens(size_t(t.size()));
      t.read(0, t.size(), tokens.data());
      return c.tokenizer.decode(tokens);
    };
    return std::pair(text(c.train), text(c.valid));
  };
  write_file(path, "0123456789");
  CHECK(parts(TokenKind::bytes, 0.1) == std::pair<std::string, std::string>("012345678", "9"));
  write_file(path, "12345678\xC3\xA9");  // the cut falls inside the last character
  CHECK(parts(TokenKind::chars, 0.1).first == "12345678");
  CHECK(parts(TokenKind::chars, 0.1).second == "\uFFFD");
  CHECK(parts(TokenKind::bytes, 0.1).second == "\xA9");
  write_file(path, "one two\nthree\nfour one\n");
  CHECK(parts(TokenKind::words, 0.3) ==
        std::pair<std::string, std::string>("one two\nthree\n", "<unk> one\n"));
  CHECK(error_of<UsageError>([&] { parts(TokenKind::words, 0.9); }) ==
        path + ": is too short to hold out 0.9 of it in whole lines");

  write_file(folder.file("v"), "two");
  const Corpus c =
      read_corpus({.data = path, .validation = folder.file("v"), .kind = TokenKind::words});
  CHECK(c.train.size() == 8);
  CHECK(c.valid.size() == 2);
}

TEST_CASE("a stream makes its tokens from the text, wherever it is read", "[examples]") {
  const std::string text = "one two  three\n\n four\tfive \u00e9\u4e16 six\nseven";
  std::string all;
  for (int i = 0; i < 100; ++i) all += text.substr(0, text.size() - size_t(i % 7 == 0 ? 5 : 0));
  for (const char* ending : {"", " ", "\n", "\n ", "x"}) {
    const std::string whole = all + ending;
    for (const TokenKind kind : {TokenKind::bytes, TokenKind::chars, TokenKind::words}) {
      const Tokenizer t = Tokenizer::learn(kind, whole);
      const Tokens expected = t.encode(whole);
      const TokenStream stream(t, whole, nullptr);
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
      CHECK_THROWS_AS(stream.read(size, 1, &none), stretto::Error);
      CHECK_THROWS_AS(stream.read(INT64_MAX, 1, &none), stretto::Error);
    }
  }
}

TEST_CASE("a mapped text takes little memory of its own", "[examples]") {
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
  if (own_bytes() < 0) STRETTO_SKIP("the system does not tell");
  const double size = double(lines) * double(line.size());
  for (const TokenKind kind : {TokenKind::bytes, TokenKind::chars, TokenKind::words}) {
    const long before = own_bytes();
    const Corpus corpus = read_corpus({.data = folder.file("t"), .kind = kind});
    int64_t sum = 0;
    corpus.train.each([&](int64_t token) { sum += token; });
    CHECK(sum > 0);
    // 1/32 of the text, a table of all characters, and what the allocator keeps.
    CHECK(double(own_bytes() - before) < size / 32 + (8 << 20));
  }
}

TEST_CASE("training segments continue their columns", "[examples]") {
  for (const auto& [n, batch, length] :
       {std::tuple(103, 4, 7), {24, 3, 8}, {27, 3, 8}, {4, 2, 8}, {50, 1, 1}}) {
    const OrderedSegments segments(counting(n), batch, length);
    const int64_t column = n / batch;
    INFO(n << " tokens, " << batch << " columns, length " << length);
    std::vector<std::vector<int64_t>> inputs(static_cast<size_t>(batch)), targets(inputs);
    for (int64_t step = 0; step < segments.per_epoch(); ++step) {
      const stretto::nn::Batch s = segments(step);
      CHECK(segments.starts_epoch(step) == (step == 0));
      REQUIRE(s.inputs.shape() == s.targets.shape());
      REQUIRE(s.inputs.size(0) == batch);
      CHECK(s.inputs.size(1) <= length);
      if (step + 1 < segments.per_epoch()) CHECK(s.inputs.size(1) == length);
      for (int b = 0; b < batch; ++b) {
        for (int64_t x : s.inputs[b].to_vector<int64_t>()) inputs[size_t(b)].push_back(x);
        for (int64_t x : s.targets[b].to_vector<int64_t>()) targets[size_t(b)].push_back(x);
      }
    }
    for (int b = 0; b < batch; ++b) {
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < column; ++i) expected.push_back(b * column + i);
      CHECK(targets[size_t(b)] == std::vector<int64_t>(expected.begin() + 1, expected.end()));
      expected.pop_back();
      CHECK(inputs[size_t(b)] == expected);
    }
    const stretto::nn::Batch again = segments(segments.per_epoch());
    CHECK(segments.starts_epoch(segments.per_epoch()));
    CHECK(again.inputs.to_vector<int64_t>() == segments(0).inputs.to_vector<int64_t>());
  }
  CHECK(error_of<stretto::Error>([] { OrderedSegments(counting(7), 4, 2); }) ==
        "[OrderedSegments] 7 tokens in 4 columns; each must have at least 2");
}

TEST_CASE("every held-out token but the first is scored once", "[examples]") {
  for (const int n : {2, 5, 17, 100}) {
    for (const ScoringRule rule : {ScoringRule{8, 0, 8},
                                   {8, 0, 3},
                                   {8, 0, 1},
                                   {200, 0, 50},
                                   {8, 16, 8},
                                   {8, 1, 8},
                                   {1, 4, 1},
                                   {200, 8, 200}}) {
      for (const int64_t batch : {1, 3, 64}) {
        INFO(n << " tokens, length " << rule.length << ", memory " << rule.memory << ", stride "
               << rule.stride << ", batch " << batch);
        std::map<int64_t, int> scored;
        std::vector<int64_t> last(size_t(batch), -1);  // the newest input of each column
        bool first_row = true;
        scoring_segments(counting(n), rule, batch, [&](const stretto::nn::Batch& s) {
          REQUIRE(s.inputs.size(0) <= batch);
          const int64_t length = s.inputs.size(1);
          REQUIRE(length <= rule.length);
          const auto inputs = s.inputs.to_vector<int64_t>(),
                     targets = s.targets.to_vector<int64_t>();
          for (size_t i = 0; i < inputs.size(); ++i) {
            if (targets[i] == stretto::nn::not_scored) continue;
            ++scored[targets[i]];
            CHECK(targets[i] == inputs[i] + 1);
            const int64_t position = int64_t(i) % length;
            const size_t row = i / size_t(length);
            if (rule.memory > 0) {  // without a gap, so that the memory is right
              if (last[row] >= 0) CHECK(inputs[i] == last[row] + 1);
              last[row] = inputs[i];
            } else if (!(first_row && row == 0)) {
              CHECK(position >= length - rule.stride);
            }
          }
          first_row = false;
        });
        CHECK(scored.size() == size_t(n - 1));
        CHECK(scored.begin()->first == 1);
        CHECK(std::all_of(scored.begin(), scored.end(), [](auto& s) { return s.second == 1; }));
      }
    }
  }
}

TEST_CASE("counting predicts as its formula says", "[examples]") {
  const std::vector<int32_t> train{0, 1, 0, 2, 0, 1};
  const CountingLoss loss = counting_loss(train, Tokens{0, 1, 2, 2}, 3);
  const double p0 = 4.0 / 9, p1 = 3.0 / 9, p2 = 2.0 / 9;
  CHECK(p0 + p1 + p2 == Approx(1));
  CHECK(loss.unigram == Approx(-(std::log(p1) + 2 * std::log(p2)) / 3));
  // After 0: twice 1, once 2, two kinds; after 1: once 0; after 2: once 0.
  const double after0 = (2 + 2 * p1) / 5, after1 = (0 + 1 * p2) / 2, after2 = (0 + 1 * p2) / 2;
  CHECK(loss.bigram == Approx(-(std::log(after0) + std::log(after1) + std::log(after2)) / 3));
  // A token that nothing has followed is predicted by the unigrams.
  const CountingLoss end = counting_loss(Tokens{0, 0, 1}, Tokens{1, 0}, 2);
  CHECK(end.bigram == Approx(-std::log(3.0 / 5)));
  CHECK(end.bigram == Approx(end.unigram));
}
