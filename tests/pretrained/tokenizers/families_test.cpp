// Ids and texts of all families against the expected values of tests/pretrained/tokenizers/expected.py.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "pretrained/tokenizers/subword_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
namespace fs = std::filesystem;

namespace {

class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool at_end() const { return at_ == bytes_.size(); }
  int64_t number() {
    int64_t n;
    std::memcpy(&n, take(8).data(), 8);
    return n;
  }
  std::string text() { return std::string(take(size_t(number()))); }
  std::vector<int32_t> numbers(size_t n) {
    std::vector<int32_t> values(n);
    if (n > 0) std::memcpy(values.data(), take(4 * n).data(), 4 * n);
    return values;
  }

 private:
  std::string_view take(size_t n) {
    REQUIRE(n <= bytes_.size() - at_);
    at_ += n;
    return std::string_view(bytes_).substr(at_ - n, n);
  }
  std::string bytes_;
  size_t at_ = 0;
};

// Empty if expected.py has not run.
fs::path expected_folder() {
  return testing::find_upwards("build/tokenizers/strings").parent_path();
}

const char* const absent = "no build/tokenizers: run tests/pretrained/tokenizers/expected.py";

std::vector<std::string> strings_in(const fs::path& folder) {
  std::vector<std::string> strings;
  for (Bytes bytes(testing::read_file((folder / "strings").string())); !bytes.at_end();)
    strings.push_back(bytes.text());
  return strings;
}

// Compares ids, texts and streamed texts; returns the number of strings that differ.
void compare(const nn::SubwordTokenizer& tokenizer, const std::vector<std::string>& strings,
             const fs::path& ids, bool is_pieces) {
  Bytes expected(testing::read_file(ids.string()));
  int wrong_ids = 0, wrong_texts = 0, wrong_streams = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    const std::vector<int32_t> numbers = expected.numbers(size_t(expected.number()));
    const std::vector<int64_t> want(numbers.begin(), numbers.end());
    const std::string text = expected.text();
    if (tokenizer.encode(strings[i], {.allow_special = !is_pieces}) != want) ++wrong_ids;
    if (is_pieces || i < 4) continue;  // the texts of long strings are not in the file
    if (tokenizer.decode(want, {.skip_special_tokens = false}) != text) ++wrong_texts;
    nn::DecodeStream stream(tokenizer, {.skip_special_tokens = false});
    std::string streamed;
    for (const int64_t id : want) streamed += stream.add(id);
    if (streamed + stream.finish() != text) ++wrong_streams;
  }
  CHECK(wrong_ids == 0);
  CHECK(wrong_texts == 0);
  CHECK(wrong_streams == 0);
}

}  // namespace

TEST_CASE("tokenizers of all families give the ids of tokenizers and sentencepiece",
          "[tokenizers][published]") {
  const fs::path folder = expected_folder();
  if (folder.empty()) STRETTO_SKIP(absent);
  const std::vector<std::string> strings = strings_in(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    INFO(name);
    const fs::path path =
        folder.parent_path().parent_path() / testing::read_file((entry.path() / "path").string());
    const auto tokenizer = nn::SubwordTokenizer::load(path.string());
    compare(tokenizer, strings, entry.path() / "ids", path.extension() == ".model");
  }
}

TEST_CASE("a saved tokenizer.json gives the same ids", "[tokenizers][published]") {
  const fs::path folder = expected_folder();
  if (folder.empty()) STRETTO_SKIP(absent);
  const std::vector<std::string> strings = strings_in(folder);
  for (const char* name : {"gpt2", "qwen2", "bert_cased", "t5", "mistral", "sp_bpe_llama"}) {
    INFO(name);
    const fs::path path =
        folder.parent_path().parent_path() / testing::read_file((folder / name / "path").string());
    const auto tokenizer = nn::SubwordTokenizer::load(path.string());
    const testing::TempDir saved;
    const bool is_folder = fs::is_directory(path);  // save() would copy its files
    tokenizer.save(is_folder ? saved.file("tokenizer.json") : saved.str());
    const auto again = nn::SubwordTokenizer::load(saved.str());
    int different = 0;
    for (size_t i = 4; i < strings.size(); i += 10)
      if (tokenizer.encode(strings[i]) != again.encode(strings[i])) ++different;
    CHECK(different == 0);
    if (!is_folder) CHECK(tokenizer.eos() == again.eos());
  }
}

TEST_CASE("the vocabulary of a GGUF file gives the ids of its tokenizer.json",
          "[tokenizers][published]") {
  const fs::path folder = expected_folder();
  if (folder.empty()) STRETTO_SKIP(absent);
  Bytes file(testing::read_file((folder / "smollm2/gguf").string()));
  nn::GgufVocabulary vocabulary;
  vocabulary.name = "smollm2";
  vocabulary.model = file.text();
  vocabulary.pre = file.text();
  for (auto* rows : {&vocabulary.tokens, &vocabulary.merges})
    for (int64_t n = file.number(); n > 0; --n) rows->push_back(file.text());
  vocabulary.token_types = file.numbers(vocabulary.tokens.size());
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  const auto tokenizer = nn::SubwordTokenizer::from_gguf(vocabulary);
  CHECK(tokenizer.size() == 49152);
  CHECK(tokenizer.eos() == 2);
  CHECK(tokenizer.is_special(2));
  compare(tokenizer, strings_in(folder), folder / "smollm2/ids", false);
}
