#include "pretrained/tokenizers/files/families.h"

#include <algorithm>

#include "core/error.h"
#include "core/one_line.h"
#include "pretrained/tokenizers/text/pattern.h"

namespace stretto::nn::tokenizers {
namespace {

std::string split(const char* pattern) {
  return R"({"type":"Split","pattern":{"Regex":)" + quoted_json(pattern) +
         R"(},"behavior":"Isolated","invert":false})";
}

std::string byte_level(bool use_regex) {
  return std::string(
             R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)") +
         (use_regex ? "true}" : "false}");
}

std::string sequence(const std::string& first, const std::string& second) {
  return R"({"type":"Sequence","pretokenizers":[)" + first + "," + second + "]}";
}

constexpr const char* llama3_pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* qwen2_pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* bloom_pattern = " ?[^(\\s|[.,!?…。，、।۔،])]+";

int32_t id_in(const Definition& definition, const std::string& text) {
  for (const AddedToken& token : definition.added)
    if (token.content == text) return token.id;
  for (const Token& token : definition.vocabulary)
    if (token.text == text) return token.id;
  fail(op, definition.name, ": the token ", in_quotes(text), " is not in the vocabulary");
}

}  // namespace

void set_byte_level_bpe(Definition& d, Family family) {
  std::string words;
  switch (family) {
    case Family::gpt2:
      words = byte_level(true);
      break;
    case Family::llama3:
      words = sequence(split(llama3_pattern), byte_level(false));
      break;
    case Family::qwen2:
      words = sequence(split(qwen2_pattern), byte_level(false));
      d.normalizer = parse_json(op, R"({"type":"NFC"})", d.name);
      break;
    case Family::smollm:
      words = sequence(R"({"type":"Digits","individual_digits":true})", byte_level(true));
      break;
    case Family::bloom:
      words = sequence(split(bloom_pattern), byte_level(false));
      break;
  }
  d.pre_tokenizer = parse_json(op, words, d.name);
  d.decoder = parse_json(op, byte_level(true), d.name);
  d.model = parse_json(
      op,
      std::string(R"({"type":"BPE","dropout":null,"fuse_unk":false,"byte_fallback":false,)") +
          R"("ignore_merges":)" + (family == Family::llama3 ? "true}" : "false}"),
      d.name);
}

void set_bert(Definition& d, bool lower_case, bool chinese, const Json& strip_accents) {
  const auto text = [](bool value) { return value ? "true" : "false"; };
  d.normalizer = parse_json(
      op,
      std::string(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":)") +
          text(chinese) + R"(,"strip_accents":)" + json_text(strip_accents) + R"(,"lowercase":)" +
          text(lower_case) + "}",
      d.name);
  d.pre_tokenizer = parse_json(op, R"({"type":"BertPreTokenizer"})", d.name);
  d.decoder = parse_json(op, R"({"type":"WordPiece","prefix":"##","cleanup":true})", d.name);
  d.model =
      parse_json(op,
                 R"({"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",)"
                 R"("max_input_chars_per_word":100})",
                 d.name);
}

void set_sentencepiece(Definition& d) {
  const SentencePiece& spec = *d.sentencepiece;
  const std::string strip =
      spec.add_dummy_prefix ? std::string(",{\"type\":\"Strip\",\"content\":\" \",\"start\":") +
                                  (spec.whitespace_is_suffix ? "0,\"stop\":1}" : "1,\"stop\":0}")
                            : "";
  d.decoder = parse_json(
      op,
      "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
      "\"\xE2\x96\x81\"},"
      "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" +
          strip + "]}",
      d.name);
  for (size_t id = 0; id < spec.types.size(); ++id) {
    if (spec.types[id] != PieceType::control && spec.types[id] != PieceType::unknown) continue;
    AddedToken token;
    token.content = d.vocabulary[id].text;
    token.id = int32_t(id);
    token.special = true;
    d.added.push_back(token);
    if (spec.types[id] == PieceType::unknown && d.special.unk.empty())
      d.special.unk = token.content;
  }
}

void set_template(Definition& d, const std::string& before, const std::string& after) {
  if (before.empty() && after.empty()) return;
  std::string single, tokens;
  const auto add_special = [&](const std::string& text) {
    if (text.empty()) return;
    single += "{\"SpecialToken\":{\"id\":" + quoted_json(text) + ",\"type_id\":0}},";
    if (tokens.find(quoted_json(text) + ":") != std::string::npos) return;
    if (!tokens.empty()) tokens += ',';
    tokens += quoted_json(text) + ":{\"id\":" + quoted_json(text) + ",\"ids\":[" +
              std::to_string(id_in(d, text)) + "],\"tokens\":[" + quoted_json(text) + "]}";
  };
  add_special(before);
  single += R"({"Sequence":{"id":"A","type_id":0}},)";
  add_special(after);
  single.pop_back();
  std::string pair = single;
  pair += R"(,{"Sequence":{"id":"B","type_id":1}})";
  if (!after.empty())
    pair += ",{\"SpecialToken\":{\"id\":" + quoted_json(after) + ",\"type_id\":1}}";
  d.post_processor =
      parse_json(op,
                 "{\"type\":\"TemplateProcessing\",\"single\":[" + single + "],\"pair\":[" + pair +
                     "],\"special_tokens\":{" + tokens + "}}",
                 d.name);
}

void add_token(Definition& d, const AddedToken& token) {
  const auto same = [&](const AddedToken& other) { return other.content == token.content; };
  if (std::none_of(d.added.begin(), d.added.end(), same)) d.added.push_back(token);
}

}  // namespace stretto::nn::tokenizers
