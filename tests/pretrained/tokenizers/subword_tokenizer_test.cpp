// Small tokenizers with ids that can be checked by hand.
#include "pretrained/tokenizers/subword_tokenizer.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "pretrained/tokenizers/files/definition.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using Ids = std::vector<int64_t>;

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

TEST_CASE("escaped special tokens are ordinary characters", "[tokenizers]") {
  const std::string model =
      R"("model":{"type":"BPE","vocab":{"<":0,"e":1,">":2,"a":3,"▁":4},"merges":[]}})";
  const std::string added =
      R"({"added_tokens":[{"id":5,"content":"<e>","special":true},{"id":6,"content":"é","special":true},)"
      R"({"id":7,"content":"<a","special":false}],)";
  const std::string metaspace =
      R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},)";
  std::string normalized = added;
  normalized.replace(normalized.find("\"special\""), 0, "\"normalized\":true,");
  const std::string replace =
      R"("normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},)";
  for (const std::string& json : {added + model, added + metaspace + model,
                                  normalized + replace + model, normalized + metaspace + model}) {
    INFO(json);
    const auto tokenizer = from_json(json);
    const std::string escape = "\xEF\xB7\x90";
    for (const std::string text : {"<e>", "a<e>a", "<<e>e>", "<e><e>", "e<a>", "aa", "", "<e<a"})
      CHECK(tokenizer.encode(tokenizer.escape_special(text, escape), {.escape = escape}) ==
            tokenizer.encode(text, {.allow_special = false}));
    CHECK(tokenizer.escape_special("a<e>", escape) == "a<" + escape + "e>");
    const Ids quoted = tokenizer.encode("<e>" + tokenizer.escape_special("a<e>", escape) + "<e>",
                                        {.escape = escape});
    CHECK(std::count(quoted.begin(), quoted.end(), 5) == 2);
    CHECK(quoted.front() == 5);
    CHECK(quoted.back() == 5);
    CHECK_THROWS_WITH(tokenizer.escape_special("aé", escape),
                      "[tokenizer] \"é\" in the text is a special token of one character, which "
                      "cannot be escaped");
    CHECK_THROWS_WITH(tokenizer.escape_special("a", ""),
                      "[tokenizer] the escape is empty or part of the text; pass characters that "
                      "the text does not have");
  }
}

TEST_CASE("special tokens that normalization makes cannot be escaped", "[tokenizers]") {
  const auto tokenizer = from_json(
      R"({"added_tokens":[{"id":3,"content":"<e>","special":true,"normalized":true}],)"
      R"("normalizer":{"type":"Lowercase"},"model":{"type":"BPE","vocab":{"<":0,"e":1,">":2},"merges":[]}})");
  CHECK(tokenizer.encode("<E>") == Ids{3});
  CHECK_THROWS_WITH(
      tokenizer.escape_special("<E>", "|"),
      "[tokenizer] the text is encoded with the control token \"<e>\", which cannot be escaped");
  CHECK(tokenizer.escape_special("<e>", "|") == "<|e>");
  // The model can find it too, as a piece of Unigram.
  const auto unigram = from_json(
      R"({"added_tokens":[{"id":1,"content":"<e>","special":true}],"model":{"type":"Unigram",)"
      R"("unk_id":0,"vocab":[["<unk>",0],["<e>",0],["<",-9],["e",-9],[">",-9]]}})");
  CHECK_THAT(testing::error_of<Error>([&] { unigram.escape_special("<e>", "|"); }),
             Containing("is encoded with the control token \"<e>\", which cannot be escaped"));
}

TEST_CASE("added tokens of a chat template are escaped with their special tokens", "[tokenizers]") {
  const auto tokenizer = from_json(
      R"({"added_tokens":[{"id":4,"content":"<e>","special":false},{"id":5,"content":"  ","special":)"
      R"(false},{"id":6,"content":"e","special":false},{"id":7,"content":"<a>","special":false}],)"
      R"("model":{"type":"BPE","vocab":{"<":0,">":1," ":2,"a":3},"merges":[]}})");
  const std::string source = "  {{ '<e>' + message.content }}";
  CHECK(tokenizer.escape_special("<e>  e<a>", "|", source) == "<|e>  e<a>");
  CHECK(tokenizer.encode("<|e>  <a>", {.escape = "|"}) == Ids{0, 6, 1, 5, 7});
}

TEST_CASE("long texts of special tokens are escaped in linear time", "[tokenizers]") {
  const auto tokenizer = from_json(
      R"({"added_tokens":[{"id":3,"content":"<e>","special":true},{"id":4,"content":" ","rstrip":)"
      R"(true}],"model":{"type":"BPE","vocab":{"<":0,"e":1,">":2},"merges":[]}})");
  constexpr size_t n = 400'000;
  std::string text;
  for (size_t i = 0; i < n; ++i) text += "<e>";
  CHECK(tokenizer.encode(tokenizer.escape_special(text, "|"), {.escape = "|"}).size() == 3 * n);
  CHECK(tokenizer.encode(std::string(n, ' ')).size() == n);
}

TEST_CASE("a stream holds back incomplete characters", "[tokenizers]") {
  const auto tokenizer = from_json(bpe_json);
  nn::DecodeStream stream(tokenizer);
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
      with("post_processor",
           R"({"type":"Sequence","processors":[{"type":"TemplateProcessing","single":)"
           R"([{"SpecialToken":{"id":"a"}},{"Sequence":{"id":"A"}}],"special_tokens":)"
           R"({"a":{"id":"a","ids":[0]}}},{"type":"BertProcessing","sep":["a",0],)"
           R"("cls":["a",0]}]})"),
      Containing("post_processor BertProcessing: behind TemplateProcessing is not supported"));
  CHECK_THAT(with("decoder", R"({"type":"Strip","content":"ab","start":1,"stop":0})"),
             Containing("decoder Strip: content must be one character"));
  CHECK_THAT(with("added_tokens", R"([{"id":1,"content":" ","normalized":true}],"normalizer":)"
                                  R"({"type":"Strip"})"),
             Containing("the normalizer removes all of the added token \" \""));
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

namespace {

// BPE of single characters: a, b, x, blank, ▁, <, l, >.
nn::SubwordTokenizer from_parts(const std::string& parts) {
  return from_json("{" + parts +
                   R"("model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"x":3,)"
                   R"(" ":4,"▁":5,"<":6,"l":7,">":8},"merges":[]}})");
}

std::string streamed(const nn::SubwordTokenizer& tokenizer, const Ids& ids) {
  nn::DecodeStream stream(tokenizer);
  std::string text;
  for (const int64_t id : ids) text += stream.add(id);
  return text + stream.finish();
}

}  // namespace

TEST_CASE("normalized added tokens are decoded to their normalized text", "[tokenizers]") {
  const auto tokenizer = from_parts(
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Lowercase"},{"type":"Prepend",)"
      R"("prepend":"▁"}]},"added_tokens":[{"id":9,"content":"<L>","normalized":true},)"
      R"({"id":10,"content":"<S>","normalized":true,"special":true},{"id":11,"content":"<R>",)"
      R"("normalized":false}],"decoder":{"type":"Fuse"},)");
  CHECK(tokenizer.decode(Ids{1, 9, 11, 10}) == "a▁<l><R>▁<s>");
  CHECK(tokenizer.token(9) == "<L>");
  CHECK(tokenizer.is_special(10));
}

TEST_CASE("empty matches are replaced and split as in tokenizers", "[tokenizers]") {
  const auto replaced = [](const std::string& pattern) {
    return from_parts(R"("normalizer":{"type":"Replace","pattern":{"Regex":")" + pattern +
                      R"("},"content":"l"},)");
  };
  CHECK(replaced("x*").encode("xa") == Ids{7, 1, 7});
  CHECK(replaced("x*").encode("ax") == Ids{7, 1, 7});
  CHECK(replaced("x*").encode("a") == Ids{7, 1, 7});
  CHECK(replaced("x*").encode("") == Ids{});
  CHECK(replaced("(?=b)").encode("abb") == Ids{1, 7, 2, 7, 2});
  // The border between x and a is no match: both are one word, which has one suffix.
  const auto split = from_json(
      R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"x*"},"behavior":"MergedWithNext",)"
      R"("invert":false},"model":{"type":"BPE","vocab":{"x":0,"a":1,"a</w>":2},)"
      R"("end_of_word_suffix":"</w>","merges":[]}})");
  CHECK(split.encode("xa") == Ids{0, 2});
}

TEST_CASE("an added token in the white space of another one is found", "[tokenizers]") {
  const auto tokenizer = from_parts(
      R"("added_tokens":[{"id":9,"content":"<l>","rstrip":true},{"id":10,"content":"  "}],)");
  CHECK(tokenizer.encode("a<l>    b") == Ids{1, 9, 10, 10, 2});
  CHECK(tokenizer.encode("a<l>     b") == Ids{1, 9, 10, 10, 4, 2});
}

TEST_CASE("Metaspace's prefix \"first\" depends on the first character", "[tokenizers]") {
  const auto first = [](const std::string& normalizers, const std::string& words,
                        const std::string& text) {
    return from_parts(R"("normalizer":{"type":"Sequence","normalizers":[)" + normalizers +
                      R"(]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + words +
                      R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]},)")
        .encode(text);
  };
  const std::string bert = R"({"type":"BertNormalizer","lowercase":false})";
  CHECK(first(bert, "", "ab") == Ids{5, 1, 2});
  CHECK(first(bert, "",
              "\x01"
              "ab") == Ids{1, 2});
  CHECK(first(R"({"type":"Nmt"})", "",
              "\x01"
              "ab") == Ids{1, 2});
  const auto replace = [](const std::string& what, const std::string& by) {
    return R"({"type":"Replace","pattern":{"String":")" + what + R"("},"content":")" + by + "\"}";
  };
  CHECK(first(replace("b", ""), "", "ba") == Ids{1});
  CHECK(first(replace("b", "x"), "", "ba") == Ids{5, 3, 1});
  CHECK(first(replace("bb", "x"), "", "bba") == Ids{3, 1});  // in the place of the second b
  CHECK(first(replace("b", ""), "", "ab") == Ids{5, 1});
  // Two words come from the first character.
  CHECK(first(R"({"type":"Prepend","prepend":"x"})",
              R"({"type":"Split","pattern":{"String":"x"},"behavior":"Isolated","invert":false},)",
              "a") == Ids{5, 3, 5, 1});
}

TEST_CASE("a stream is the decoded text, whatever the decoder looks at", "[tokenizers]") {
  const auto with = [](const std::string& decoder) {
    return from_json(R"({"decoder":)" + decoder +
                     R"(,"model":{"type":"BPE","vocab":{"b":0," ":1,"c":2,"<0xE2>":3,"<0x96>":4,)"
                     R"("<0x81>":5,"▁":6,"b</w>":7,"  c":8,"ab":9},"merges":[]}})");
  };
  const std::string strip = R"({"type":"Strip","content":" ","start":1,"stop":1})";
  const std::string fuse = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)";
  const std::string bad = "\xEF\xBF\xBD";
  const struct {
    std::string decoder;
    Ids ids;
    std::string text;
  } rows[] = {
      {fuse + strip + "]}", {1, 1, 0, 1, 1, 1, 2, 1, 1}, " b   c "},
      {strip, {0, 8, 8, 2}, "b c cc"},
      {R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Metaspace",)"
       R"("replacement":"▁","prepend_scheme":"always"}]})",
       {0, 3, 4, 5, 6, 3, 4, 5},
       "b   "},
      {R"({"type":"ByteFallback"})", {0, 3, 4, 5, 3, 2}, "b" + bad + bad + bad + bad + "c"},
      {R"({"type":"ByteFallback"})", {3, 4, 5, 4}, bad + bad + bad + bad},
      {R"({"type":"BPEDecoder","suffix":"</w>"})", {7, 0, 7, 7}, "b bb b"},
      {fuse + R"({"type":"Replace","pattern":{"String":"bab"},"content":"-"}]})",
       {0, 9, 9, 0, 0, 9, 0},
       "-abb-b"},
      {fuse + R"({"type":"Replace","pattern":{"Regex":"b+"},"content":"-"}]})", {0, 0, 2}, "-c"},
      {fuse + R"({"type":"WordPiece","prefix":"##","cleanup":true}]})", {0, 1, 2}, "b c"},
      {"null", {0, 2, 0}, "b c b"},
  };
  for (const auto& row : rows) {
    INFO(row.decoder);
    const auto tokenizer = with(row.decoder);
    CHECK(tokenizer.decode(row.ids) == row.text);
    CHECK(streamed(tokenizer, row.ids) == row.text);
  }
  nn::DecodeStream stream(with(fuse + strip + "]}"));  // blanks wait, characters do not
  CHECK(stream.add(0) == "b");
  CHECK(stream.add(1) == "");
  CHECK(stream.add(1) == " ");
  CHECK(stream.add(2) == " c");
}

TEST_CASE("the end of a stream does not depend on other streams", "[tokenizers]") {
  const auto tokenizer = from_parts(
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ",)"
      R"("start":1,"stop":1}]},)");
  nn::DecodeStream one(tokenizer), other(tokenizer);
  std::string text;
  for (int i = 0; i < 70'000; ++i) text += one.add(1);
  CHECK(other.add(2) == "b");
  CHECK((text + one.finish()).size() == 70'000);
}

TEST_CASE("decoders that multiply a text stop at a limit", "[tokenizers]") {
  std::string rules;
  for (int i = 0; i < 40; ++i)
    rules += std::string(i > 0 ? "," : "") +
             R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const auto sequence = [](const std::string& list) {
    return R"("decoder":{"type":"Sequence","decoders":[)" + list + "]},";
  };
  const auto tokenizer = from_parts(sequence(rules));
  CHECK_THAT(testing::error_of<Error>([&] { tokenizer.decode(Ids{1}); }),
             Containing("the rules of the tokenizer make a text of"));
  CHECK_THAT(testing::error_of<Error>([&] {
               streamed(tokenizer, Ids{2, 1});
             }),
             Containing("the rules of the tokenizer make a text of"));
  // Twelve double the text 4,096 times: the limit is that of the whole text.
  const auto twelve = from_parts(sequence(rules.substr(0, 12 * (rules.size() + 1) / 40 - 1)));
  CHECK(streamed(twelve, Ids(8, 1)).size() == 8 * 4096);
  CHECK_THAT(testing::error_of<Error>([&] { streamed(twelve, Ids(17, 1)); }),
             Containing("the rules of the tokenizer make a text of"));
  for (const char* kind : {"decoder", "pre_tokenizer"}) {
    const bool is_decoder = kind[0] == 'd';
    std::string list = is_decoder ? R"({"type":"Fuse"})" : R"({"type":"WhitespaceSplit"})";
    for (int i = 0; i < 100; ++i)
      list += is_decoder ? R"(,{"type":"Fuse"})" : R"(,{"type":"Digits"})";
    CHECK_THAT(refusal(std::string("{\"") + kind + R"(":{"type":"Sequence",")" +
                       (is_decoder ? "decoders" : "pretokenizers") + "\":[" + list +
                       R"(]},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})"),
               Containing("more than 100"));
  }
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
