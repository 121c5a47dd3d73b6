// Fuzzes the readers of tokenizers: tokenizer.json, SentencePiece models, and files of several
// parts.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "pretrained/tokenizers/files/definition.h"
#include "pretrained/tokenizers/subword_tokenizer.h"
#include "pretrained/tokenizers/text/charsmap.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/temp_dir.h"

namespace stretto::testing {
namespace {

using nn::SubwordTokenizer;
using nn::tokenizers::Definition;

void require(bool condition, const char* defect) {
  if (!condition) throw FuzzFailure(defect);
}

// Texts with every kind of character; errors are accepted, because a vocabulary may be unable to
// encode them.
void use(const SubwordTokenizer& tokenizer) {
  for (const std::string_view text :
       {std::string_view(
            "Hello, w\xC3\xB6rld! 123  \n <a> \xE4\xBD\xA0 \xF0\x9F\x98\x80 \xFF e\xCC\x81"),
        std::string_view(
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        std::string_view("", 0), std::string_view("\0\r\n", 3)}) {
    std::vector<int64_t> ids;
    try {
      ids = tokenizer.encode(text);
    } catch (const Error&) {
      continue;
    }
    for (const int64_t id : ids) {
      require(id >= 0 && id < tokenizer.size(), "an id outside of the vocabulary");
      require(tokenizer.token(id).has_value(), "an id without a token");
    }
    require(ids == tokenizer.encode(text), "ids change from call to call");
    try {
      tokenizer.decode(ids);
      nn::DecodeStream stream(tokenizer);
      for (size_t i = 0; i < ids.size() && i < 16; ++i) stream.add(ids[i]);
      stream.finish();
    } catch (const Error&) {
      continue;
    }
  }
}

template <class Read>
bool reads(const std::string& name, Read read) {
  try {
    use(read());
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.starts_with("[tokenizer] " + name),
            "an error that does not begin with the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < name.size() + 400, "an error that repeats the file");
    return false;
  }
}

bool run_file(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  return reads(file.path(), [&] { return SubwordTokenizer::load(file.path()); });
}

// Lines of GGUF metadata: model, pre, then "token score type" and, after an empty line, merges.
bool run_gguf(std::string_view input) {
  nn::GgufVocabulary v;
  v.name = "model.gguf";
  std::vector<std::string> lines;
  for (size_t at = 0; at <= input.size();) {
    const size_t end = std::min(input.find('\n', at), input.size());
    lines.emplace_back(input.substr(at, end - at));
    at = end + 1;
  }
  lines.resize(std::max<size_t>(lines.size(), 3));
  v.model = lines[0];
  v.pre = lines[1];
  size_t i = 2;
  for (; i < lines.size() && !lines[i].empty(); ++i) {
    const std::string& line = lines[i];
    const size_t tab = std::min(line.find('\t'), line.size());
    v.tokens.push_back(line.substr(0, tab));
    const char kind = tab + 1 < line.size() ? line[tab + 1] : '1';
    v.token_types.push_back(kind - '0');
    v.scores.push_back(float(line.size()) * -0.5F);
  }
  for (++i; i < lines.size(); ++i)
    if (!lines[i].empty()) v.merges.push_back(lines[i]);
  if (lines.size() > 12) v.bos = int64_t(input.size() % 9) - 1;
  v.unk = 0;
  return reads(v.name, [&] { return SubwordTokenizer::from_gguf(v); });
}

// vocab.json, a zero byte, merges.txt.
bool run_bpe(std::string_view input) {
  static MemoryFile vocabulary, merges;
  const size_t zero = std::min(input.find('\0'), input.size());
  vocabulary.hold(input.substr(0, zero));
  merges.hold(input.substr(std::min(zero + 1, input.size())));
  return reads("/proc/self/fd/", [&] {
    Definition d;
    d.name = vocabulary.path();
    nn::tokenizers::read_bpe_files(vocabulary.path(), merges.path(), d);
    d.model = nn::tokenizers::parse_json("fuzz", R"({"type":"BPE"})", d.name);
    return SubwordTokenizer(std::move(d));
  });
}

// A directory with vocab.txt and, behind a zero byte, tokenizer_config.json.
bool run_folder(std::string_view input) {
  static const TempDir folder;
  const size_t zero = std::min(input.find('\0'), input.size());
  write_file(folder.file("vocab.txt"), input.substr(0, zero));
  write_file(folder.file("tokenizer_config.json"), input.substr(std::min(zero + 1, input.size())));
  return reads(folder.str(), [&] { return SubwordTokenizer::load(folder.str()); });
}

const char* const byte_level_seed =
    R"~({"version":"1.0","added_tokens":[{"id":7,"content":"<a>","special":true,"normalized":false,)~"
    R"~("lstrip":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":)~"
    R"~([{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}| ?\\p{L}+|\\s+(?!\\S)"},"behavior":"Isolated",)~"
    R"~("invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)~"
    R"~("post_processor":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE",)~"
    R"~("ignore_merges":true,"vocab":{"a":0,"b":1,"aa":2,"Ġ":3,"l":4,"ll":5,"aaaa":6},)~"
    R"~("merges":["a a",["l","l"],"aa aa"]}})~";
const char* const bert_seed =
    R"({"added_tokens":[{"id":0,"content":"[UNK]","single_word":true}],"normalizer":{"type":"Sequence","normalizers":)"
    R"([{"type":"BertNormalizer","lowercase":true,"strip_accents":null},{"type":"Replace","pattern":{"String":"a"},)"
    R"("content":"bb"},{"type":"Strip"}]},"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":)"
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A"}}],)"
    R"("pair":[],"special_tokens":{"[CLS]":{"id":"[CLS]","ids":[1],"tokens":["[CLS]"]}}},"decoder":)"
    R"({"type":"WordPiece","prefix":"##","cleanup":true},"model":{"type":"WordPiece","unk_token":"[UNK]",)"
    R"("max_input_chars_per_word":9,"vocab":{"[UNK]":0,"[CLS]":1,"he":2,"##llo":3,"!":4,"##o":5}}})";
const char* const unigram_seed =
    R"({"added_tokens":[],"normalizer":{"type":"Prepend","prepend":"▁"},"pre_tokenizer":{"type":"Metaspace",)"
    R"("replacement":"▁","prepend_scheme":"first","split":true},"post_processor":{"type":"BertProcessing","sep":)"
    R"(["</s>",1],"cls":["<s>",0]},"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":)"
    R"("▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)"
    R"("model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0],["▁",-1.5],["▁H",-2],["e",-3],)"
    R"(["ll",-4.25],["<0x0A>",-9]]}})";

std::string field(int number, const std::string& bytes) {
  return std::string(1, char(number << 3 | 2)) + char(bytes.size()) + bytes;
}

// A SentencePiece model with an empty trie of rules.
std::string sentencepiece_seed(char type) {
  const auto piece = [](const std::string& text, const std::string& rest) {
    return field(1, field(1, text) + rest);
  };
  const std::string score("\x15\0\0\x80\xBF", 5);
  std::string model = piece("<unk>", "\x18\x02") + piece("<s>", "\x18\x03") +
                      piece("\xE2\x96\x81", score) + piece("a", score) + piece("aa", score) +
                      piece("\xE2\x96\x81H", score) + piece("ll", "\x18\x04") + piece("l", score);
  model += field(2, std::string("\x18") + type + std::string("\xC8\x02\x00", 3));
  std::string map("\x08\0\0\0", 4);
  map += std::string(8, '\0') + std::string("x\0y\0", 4);
  return model + field(3, field(2, map) + "\x18\x01");
}

}  // namespace

FuzzTarget tokenizer_json_target() {
  return {
      run_file,
      {byte_level_seed, bert_seed, unigram_seed,
       R"({"truncation": "any text of any length, which is ignored ...................", "model": )"
       R"({"type": "BPE", "vocab": {"a": 0, "H": 1, "e": 2, "He": 3}, "merges": ["H e"]}})"},
      {"{\"type\":\"Sequence\",\"",
       "\"type\":\"NFKC\"",
       "\"type\":\"Metaspace\"",
       "\"Regex\":\"",
       "(?:a*)*",
       "[^\\\\s]",
       "\\\\p{L}",
       "null",
       "[]",
       "{}",
       "-1",
       "1e999",
       "\"id\":",
       "\"vocab\":{",
       "\"merges\":[",
       "▁",
       "\\u0000",
       "\\ud800",
       "\"dropout\":0.5",
       "\"byte_fallback\":true"}};
}

FuzzTarget sentencepiece_target() {
  return {run_file,
          {sentencepiece_seed('\x01'), sentencepiece_seed('\x02')},
          {"\x18\x05", "\x18\x06", "\x0A", "\x12", "\x1A", "\xE2\x96\x81",
           std::string("\x15\0\0\xC0\x7F", 5), field(1, field(1, "ab")), "<0x0A>"}};
}

FuzzTarget bpe_files_target() {
  return {run_bpe,
          {std::string(R"({"a":0,"b":1,"ab":2,"<unk>":3})") + '\0' + "#version: 0.2\na b\n",
           std::string(R"({"H":5,"e":1,"He":0})") + '\0' + "H e\r\n"},
          {"\n", " ", "{", "}", "\":", "\"aa\":7,", std::string(1, '\0'), "[1]", "4294967296"}};
}

FuzzTarget word_piece_folder_target() {
  return {run_folder,
          {std::string("[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\n##o\nh\n") + '\0' +
               R"({"do_lower_case":true,"pad_token":{"content":"[PAD]"},"added_tokens_decoder":)" +
               R"({"7":{"content":"<a>","special":true}}})",
           std::string("[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n##a\r\n!\r\n") + '\0' + "{}"},
          {"\n", "\r\n", "##", "[UNK]\n", "[CLS]\n", std::string(1, '\0'), "{}", "true", "null",
           "\"strip_accents\":false", "\"99\":{\"content\":\"x\"}"}};
}

FuzzTarget gguf_vocabulary_target() {
  return {run_gguf,
          {"gpt2\nsmollm\na\nb\nab\n<a>\t3\n\na b\n", "gpt2\nqwen2\nl\nll\n<a>\t4\n\nl l\n",
           "llama\n\n<unk>\t2\n<s>\t3\n\xE2\x96\x81\na\naa\n",
           "t5\n\n<unk>\t2\n\xE2\x96\x81H\ne\nll\t5\n",
           "bert\n\n[UNK]\t3\n[CLS]\t3\n[SEP]\t3\n\xE2\x96\x81hello\nllo\n"},
          {"\n", "\t", "gpt2\n", "llama\n", "bert\n", "t5\n", "\xE2\x96\x81", "\t6\n", "\t3\n",
           "<0x0A>\n"}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::tokenizer_json_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
