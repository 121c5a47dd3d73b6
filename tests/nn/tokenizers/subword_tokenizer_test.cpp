// Small tokenizers with ids that can be checked by hand.
#include "nn/tokenizers/subword_tokenizer.h"

#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "nn/tokenizers/files/definition.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using Ids = std::vector<int32_t>;

namespace {

// Bytes of "a", "b", blank (Ġ) and "é"; merges to "ab" and " ab".
const std::string bpe_json =
    R"({"added_tokens":[{"id":7,"content":"<e>","special":true}],"pre_tokenizer":{"type":"ByteLevel",)"
    R"("add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE",)"
    R"("vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4,"Ã":5,"©":6},"merges":["a b","Ġ ab"]}})";

nn::SubwordTokenizer from_json(const std::string& json) {
  const testing::TempDir folder;
  testing::write_file(folder.file("tokenizer.json"), json);
  return nn::SubwordTokenizer::load(folder.file("tokenizer.json"));
}

std::string refusal(const std::string& json) {
  return testing::error_of<Error>([&] { from_json(json); });
}

}  // namespace

TEST_CASE("byte-level BPE merges by rank and decodes to bytes", "[tokenizers]") {
  const auto tokenizer = from_json(bpe_json);
  CHECK(tokenizer.encode("ab ab") == Ids{3, 4});
  CHECK(tokenizer.encode("ba aab") == Ids{1, 0, 2, 0, 3});
  CHECK(tokenizer.encode("\xC3\xA9") == Ids{5, 6});
  CHECK(tokenizer.encode("") == Ids{});
  CHECK(tokenizer.decode(Ids{3, 4, 5, 6}) == "ab ab\xC3\xA9");
  CHECK(tokenizer.decode(Ids{5}) == "\xEF\xBF\xBD");
  CHECK(tokenizer.size() == 8);
  CHECK(tokenizer.token(4) == "Ġab");
  CHECK(tokenizer.id("<e>") == 7);
  CHECK_FALSE(tokenizer.token(8).has_value());
  CHECK_FALSE(tokenizer.id("zz").has_value());
  CHECK(tokenizer.decode(std::vector<int64_t>{3, 99, 4}) == "ab ab");  // no such token
  CHECK_THROWS_WITH(tokenizer.decode(Ids{-1}), "[tokenizer] token -1; must not be negative");
}

TEST_CASE("special tokens in a text are found only if they are allowed", "[tokenizers]") {
  const auto tokenizer = from_json(bpe_json);
  CHECK(tokenizer.encode("ab<e>ab") == Ids{3, 7, 3});
  // "<", "e" and ">" are not in this vocabulary, which has no token for unknown text.
  CHECK(tokenizer.encode("ab<e>ab", {.allow_special = false}) == Ids{3, 3});
  CHECK(tokenizer.is_special(7));
  CHECK(tokenizer.decode(Ids{3, 7}) == "ab");
  CHECK(tokenizer.decode(Ids{3, 7}, {.skip_special_tokens = false}) == "ab<e>");
}

TEST_CASE("a stream holds back incomplete characters", "[tokenizers]") {
  const auto tokenizer = from_json(bpe_json);
  nn::TextStream stream(tokenizer);
  CHECK(stream.add(3) == "ab");
  CHECK(stream.add(5) == "");
  CHECK(stream.add(6) == "\xC3\xA9");
  CHECK(stream.add(5) == "");
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.add(4) == " ab");
  CHECK_THROWS_WITH(stream.add(-2), "[tokenizer] token -2; must not be negative");
}

TEST_CASE("ill-formed UTF-8 is read as U+FFFD", "[tokenizers]") {
  const auto tokenizer =
      from_json(R"({"model":{"type":"WordPiece","unk_token":"?","vocab":{"?":0,"a":1,"##)"
                "\xEF\xBF\xBD"
                R"(":2}}})");
  CHECK(tokenizer.encode("a\xFF") == Ids{1, 2});
  CHECK(tokenizer.encode("a\xF0\x9F\x98") == Ids{1, 2});               // one sequence, not complete
  CHECK(tokenizer.encode("a\xC0\xAF") == Ids{1, 2, 2});                // overlong
  CHECK(tokenizer.encode("a\xED\xA0\x80") == Ids{1, 2, 2, 2});         // a surrogate
  CHECK(tokenizer.encode("a\xF4\x90\x80\x80") == Ids{1, 2, 2, 2, 2});  // over U+10FFFF
}

TEST_CASE("GPT-2's files, vocab.txt and tokenizer_config.json are read from a folder",
          "[tokenizers]") {
  const testing::TempDir folder;
  testing::write_file(folder.file("vocab.json"), R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})");
  testing::write_file(folder.file("merges.txt"), "#version: 0.2\na b\n");
  const auto gpt2 = nn::SubwordTokenizer::load(folder.str());
  CHECK(gpt2.encode("ab<|endoftext|>") == Ids{2, 3});
  CHECK(gpt2.eos() == 3);

  const testing::TempDir bert;
  testing::write_file(bert.file("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\n##s\nHello\n");
  testing::write_file(bert.file("tokenizer_config.json"),
                      R"({"do_lower_case":false,"pad_token":"[PAD]"})");
  const auto words = nn::SubwordTokenizer::load(bert.str());
  CHECK(words.encode("Hello hellos") == Ids{2, 6, 4, 5, 3});
  CHECK(words.encode("Hello", {.add_special_tokens = false}) == Ids{6});
  CHECK(words.pad() == 0);
  CHECK(words.unk() == 1);

  const testing::TempDir empty;
  CHECK_THROWS_WITH(
      nn::SubwordTokenizer::load(empty.str()),
      "[tokenizer] " + empty.str() +
          ": has no tokenizer; supported are tokenizer.json, vocab.json with merges.txt, vocab.txt "
          "and *.model");
}

TEST_CASE("a saved tokenizer is the same", "[tokenizers]") {
  const auto tokenizer = from_json(bpe_json);
  const testing::TempDir folder;
  tokenizer.save(folder.file("saved"));
  const auto again = nn::SubwordTokenizer::load(folder.file("saved"));
  CHECK(again.encode("ab ab<e>\xC3\xA9") == tokenizer.encode("ab ab<e>\xC3\xA9"));
  CHECK(again.decode(Ids{7, 3}) == "ab");
}

TEST_CASE("threads share a tokenizer", "[tokenizers]") {
  const auto tokenizer = from_json(bpe_json);
  std::vector<std::thread> threads;
  std::vector<Ids> results(4);
  for (Ids& ids : results)
    threads.emplace_back([&tokenizer, &ids] {
      for (int i = 0; i < 200; ++i)
        ids = tokenizer.encode("ab ab ba " + std::string(size_t(i % 7), 'a'));
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : results) CHECK(ids == results[0]);
}

TEST_CASE("components that are not supported are refused by name", "[tokenizers]") {
  const auto with = [](const std::string& field, const std::string& value) {
    return refusal("{\"" + field + "\":" + value +
                   R"(,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  };
  CHECK_THAT(with("normalizer", R"({"type":"ByteLevel"})"),
             Containing("normalizer ByteLevel: is not supported"));
  CHECK_THAT(with("pre_tokenizer", R"({"type":"UnicodeScripts"})"),
             Containing("pre_tokenizer UnicodeScripts: is not supported"));
  CHECK_THAT(with("decoder", R"({"type":"CTC"})"), Containing("decoder CTC: is not supported"));
  CHECK_THAT(with("post_processor", R"({"type":"X"})"),
             Containing("post_processor X: is not supported"));
  CHECK_THAT(
      with("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Removed"})"),
      Containing(": the pattern \"\\w+\": \\w is not supported"));
  CHECK_THAT(
      with("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"^a"},"behavior":"Removed"})"),
      Containing("'^' here is not supported"));
  CHECK_THAT(with("normalizer", R"({"type":"NFC","more":1})"),
             Containing("normalizer NFC: these fields are not supported: \"more\" = 1"));
  CHECK_THAT(with("surprise", "1"), Containing("not supported: \"surprise\" = 1"));
  CHECK_THAT(
      refusal(R"({"model":{"type":"WordLevel","vocab":{"a":0}}})"),
      Containing(
          "the model \"WordLevel\" is not supported; supported are BPE, Unigram and WordPiece"));
  CHECK_THAT(refusal(R"({"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}})"),
             Containing("model BPE: dropout is not supported"));
}

TEST_CASE("malformed tokenizers are refused", "[tokenizers]") {
  const auto model = [](const std::string& text) { return refusal("{\"model\":{" + text + "}}"); };
  CHECK_THAT(refusal(""), Containing(": is not JSON (byte "));
  CHECK_THAT(refusal("{}"), Containing(": has no model"));
  CHECK_THAT(model(R"("type":"BPE","vocab":{"a":0,"b":0},"merges":[])"),
             Containing("the id 0 occurs twice"));
  CHECK_THAT(model(R"("type":"BPE","vocab":{"a":0,"a":1},"merges":[])"),
             Containing("the token \"a\" occurs twice"));
  CHECK_THAT(model(R"("type":"BPE","vocab":{"a":-1},"merges":[])"),
             Containing("must be an integer of 0 to 8388607"));
  CHECK_THAT(model(R"("type":"BPE","vocab":{"a":8000000},"merges":[])"),
             Containing("is too large for a vocabulary of 1"));
  CHECK_THAT(model(R"("type":"BPE","vocab":{"a":0},"merges":["a a"])"),
             Containing("the merge \"a a\": \"aa\" is not in the vocabulary"));
  CHECK_THAT(model(R"("type":"BPE","vocab":{"a":0},"merges":["a"])"),
             Containing("must be two tokens"));
  CHECK_THAT(model(R"("type":"Unigram","unk_id":5,"vocab":[["a",0]])"),
             Containing("\"unk_id\" is 5; expected an integer of 0 … 0"));
  CHECK_THAT(model(R"("type":"WordPiece","vocab":{"a":0})"),
             Containing("\"[UNK]\" is not in the vocabulary"));
  std::string deep = R"({"model":)";
  for (int i = 0; i < 100; ++i) deep += "[";
  CHECK_THAT(refusal(deep), Containing("more than 64 levels"));
  CHECK_THAT(testing::error_of<Error>([] { nn::SubwordTokenizer::load("/no/such/file"); }),
             Containing("[tokenizer] /no/such/file: cannot open"));
}

TEST_CASE("rules that multiply a text stop at a limit", "[tokenizers]") {
  const std::string rule =
      R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(1000, 'a') + "\"}";
  const auto tokenizer =
      from_json(R"({"normalizer":{"type":"Sequence","normalizers":[)" + rule + "," + rule + "," +
                rule + R"(]},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  CHECK_THAT(testing::error_of<Error>([&] { tokenizer.encode("aaaa"); }),
             Containing("the rules of the tokenizer make a text of"));
}

TEST_CASE("scores are rounded as in tokenizers", "[tokenizers]") {
  // The segmentations of "aaaaa" have equal scores: the rounding of the sums decides.
  const auto of_scores = [](const std::string& one, const std::string& two) {
    return from_json(R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",)" + one +
                     R"(],["aa",)" + two + "]]}}")
        .encode("aaaaa");
  };
  CHECK(of_scores("-8.15674209009127", "-9.482052553993453") == Ids{1, 2, 2});
  CHECK(of_scores("-9.247108346276967", "-7.891529064662276") == Ids{2, 2, 1});
  CHECK(of_scores("-2.7417469177484257", "-2.4098152667612602") == Ids{2, 2, 1});
}

TEST_CASE("GGUF vocabularies are checked", "[tokenizers]") {
  nn::GgufVocabulary v{.name = "m.gguf",
                       .model = "gpt2",
                       .pre = "gpt-2",
                       .tokens = {"a", "b", "ab"},
                       .merges = {"a b"}};
  CHECK(nn::SubwordTokenizer::from_gguf(v).encode("ab") == Ids{2});
  v.pre = "new";
  CHECK_THAT(
      testing::error_of<Error>([&] { nn::SubwordTokenizer::from_gguf(v); }),
      Containing(
          "[tokenizer] m.gguf: tokenizer.ggml.pre \"new\" is not supported; supported are gpt-2,"));
  v.model = "rwkv";
  CHECK_THAT(testing::error_of<Error>([&] { nn::SubwordTokenizer::from_gguf(v); }),
             Containing("tokenizer.ggml.model \"rwkv\" is not supported; supported are gpt2, "
                        "llama, bert and t5"));
  const nn::GgufVocabulary llama{.name = "l.gguf",
                                 .model = "llama",
                                 .tokens = {"<unk>", "<s>", "\xE2\x96\x81", "a",
                                            "\xE2\x96\x81"
                                            "a"},
                                 .scores = {0, 0, -3, -2, -1},
                                 .token_types = {2, 3, 1, 1, 1},
                                 .bos = 1,
                                 .unk = 0};
  const auto pieces = nn::SubwordTokenizer::from_gguf(llama);
  CHECK(pieces.encode("a a") == Ids{1, 4, 4});
  CHECK(pieces.encode("xa") == Ids{1, 2, 0, 3});
  CHECK(pieces.decode(Ids{1, 4, 4}) == "a a");
}
