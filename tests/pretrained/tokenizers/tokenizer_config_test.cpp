// What the files beside a tokenizer.json add to it, as in transformers.
#include <string>
#include <vector>

#include "core/error.h"
#include "pretrained/tokenizers/subword_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using Ids = std::vector<int64_t>;

namespace {

// BPE of single characters, and a special token.
std::string with_parts(const std::string& parts) {
  return "{" + parts +
         R"("added_tokens":[{"id":5,"content":"<e>","special":true},{"id":6,"content":"<n>"}],)"
         R"("model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"▁":3,"A":4},)"
         R"("merges":[]}})";
}

nn::SubwordTokenizer from_folder(const std::string& parts, const std::string& config,
                                 const std::string& map = "{}", const std::string& added = "{}") {
  const testing::TempDir folder;
  testing::write_file(folder.file("tokenizer.json"), with_parts(parts));
  testing::write_file(folder.file("tokenizer_config.json"), config);
  testing::write_file(folder.file("special_tokens_map.json"), map);
  testing::write_file(folder.file("added_tokens.json"), added);
  return nn::SubwordTokenizer::load(folder.str());
}

std::string refusal(const std::string& parts, const std::string& config) {
  return testing::error_of<Error>([&] { from_folder(parts, config); });
}

}  // namespace

TEST_CASE("tokens of tokenizer_config.json are added to a tokenizer.json", "[tokenizers]") {
  const auto tokenizer = from_folder(
      "",
      R"({"added_tokens_decoder":{"7":{"content":"<d>","rstrip":true},"5":{"content":"<e>",)"
      R"("special":false,"lstrip":true}},"bos_token":"<s>","eos_token":"<e>","image_token":"<i>",)"
      R"("pad_token":"a","additional_special_tokens":["<n>",{"content":"<x>","lstrip":true}]})",
      R"({"bos_token":"<map>"})");
  CHECK(tokenizer.encode("b <e><d> <s><i>a<n> <x>") == Ids{2, 5, 7, 8, 9, 1, 6, 10});
  CHECK(tokenizer.size() == 11);
  CHECK(tokenizer.bos() == 8);
  CHECK(tokenizer.eos() == 5);
  CHECK(tokenizer.pad() == 1);
  CHECK(tokenizer.is_special(5));  // as in tokenizer.json
  CHECK(tokenizer.is_special(1));  // with a role
  CHECK(tokenizer.is_special(8));
  CHECK_FALSE(tokenizer.is_special(7));
  CHECK_FALSE(tokenizer.is_special(6));
  const std::string wrong_id = refusal("", R"({"added_tokens_decoder":{"9":{"content":"<e>"}}})");
  CHECK_THAT(wrong_id, Containing("the added token \"<e>\" has the id 9, but 5 in tokenizer.json"));
  CHECK_THAT(refusal("", R"({"added_tokens_decoder":{"2":{"content":"<q>"}}})"),
             Containing("the added token \"<q>\" has the id 2 of another token"));
}

TEST_CASE("special_tokens_map.json and added_tokens.json count without added_tokens_decoder",
          "[tokenizers]") {
  const auto tokenizer = from_folder(
      R"("normalizer":{"type":"Lowercase"},)", R"({"bos_token":"<s>"})",
      R"({"bos_token":{"content":"<map>"},"eos_token":"<n>"})", R"({"<map>":8,"<More>":7})");
  CHECK(tokenizer.bos() == 8);
  CHECK(tokenizer.eos() == 6);
  CHECK(tokenizer.is_special(6));
  CHECK(tokenizer.encode("<map><MORE>") == Ids{8, 7});
  CHECK_FALSE(tokenizer.id("<s>").has_value());
  const auto with_decoder = from_folder("", R"({"added_tokens_decoder":{"7":{"content":"<p>"}}})",
                                        "{}", R"({"<q>":7,"<r>":8})");
  CHECK(with_decoder.id("<p>") == 7);
  CHECK(with_decoder.size() == 8);
}

TEST_CASE("contradicting ids name the file of the vocabulary", "[tokenizers]") {
  const testing::TempDir folder;
  testing::write_file(folder.file("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
  testing::write_file(folder.file("tokenizer_config.json"),
                      R"({"added_tokens_decoder":{"9":{"content":"[PAD]"}}})");
  CHECK_THAT(testing::error_of<Error>([&] { nn::SubwordTokenizer::load(folder.str()); }),
             Containing("has the id 9, but 0 in vocab.txt"));
}

TEST_CASE("options of transformers' classes change a tokenizer.json", "[tokenizers]") {
  const std::string bert =
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"BertNormalizer","lowercase":true}]},)";
  CHECK(from_folder(bert, "{}").encode("A") == Ids{1});
  CHECK(from_folder(bert, R"({"do_lower_case":false})").encode("A") == Ids{1});
  CHECK(from_folder(bert, R"({"tokenizer_class":"BertTokenizerFast","do_lower_case":false})")
            .encode("A") == Ids{4});
  CHECK_THAT(refusal(R"("normalizer":{"type":"NFC"},)",
                     R"({"tokenizer_class":"AlbertTokenizer","do_lower_case":true})"),
             Containing("do_lower_case of tokenizer_config.json contradicts the normalizer"));

  const auto bytes = [](const std::string& config) {
    const testing::TempDir folder;
    testing::write_file(folder.file("tokenizer.json"),
                        R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":)"
                        R"({"type":"BPE","vocab":{"a":0,"Ġ":1},"merges":[]}})");
    testing::write_file(folder.file("tokenizer_config.json"), config);
    return nn::SubwordTokenizer::load(folder.str()).encode("a");
  };
  CHECK(bytes(R"({"add_prefix_space":true})") == Ids{0});
  CHECK(bytes(R"({"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true})") == Ids{1, 0});
  CHECK(bytes(R"({"tokenizer_class":"GPT2Tokenizer","add_prefix_space":null})") == Ids{0});

  const std::string metaspace =
      R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"},)";
  const std::string llama = R"({"tokenizer_class":"LlamaTokenizer","add_prefix_space":)";
  CHECK(from_folder(metaspace, llama + "true}").encode("a") == Ids{3, 1});
  CHECK_THAT(refusal(metaspace, llama + "false}"),
             Containing("add_prefix_space of tokenizer_config.json contradicts this file"));
}
