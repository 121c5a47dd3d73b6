// Writes a tokenizer as tokenizer.json, and tokenizer_config.json for transformers.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_map>

#include "core/atomic_file.h"
#include "core/error.h"
#include "pretrained/tokenizers/text/charsmap.h"
#include "pretrained/tokenizers/tokenizer_data.h"

namespace stretto::nn {

namespace tokenizers {
namespace {

const char* text_of(bool value) { return value ? "true" : "false"; }

std::string added_json(const std::vector<AddedToken>& tokens) {
  std::vector<const AddedToken*> order;
  for (const AddedToken& token : tokens) order.push_back(&token);
  std::sort(order.begin(), order.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->id < b->id; });
  std::string json = "[";
  for (const AddedToken* token : order) {
    if (json.size() > 1) json += ',';
    json += "{\"id\":" + std::to_string(token->id) + ",\"content\":" + quoted_json(token->content) +
            ",\"single_word\":" + text_of(token->single_word) +
            ",\"lstrip\":" + text_of(token->lstrip) + ",\"rstrip\":" + text_of(token->rstrip) +
            ",\"normalized\":" + text_of(token->normalized) +
            ",\"special\":" + text_of(token->special) + "}";
  }
  return json + "]";
}

// The normalizer and pre-tokenizer of a SentencePiece model as transformers converts it.
void set_components(Definition& d) {
  const SentencePiece& spec = *d.sentencepiece;
  check(!spec.whitespace_is_suffix, op, d.name,
        ": treat_whitespace_as_suffix cannot be written as tokenizer.json");
  check(std::find(spec.types.begin(), spec.types.end(), PieceType::unused) == spec.types.end(), op,
        d.name, ": unused pieces cannot be written as tokenizer.json");
  std::vector<std::string> parts;
  if (!spec.charsmap.empty())
    parts.push_back(R"({"type":"Precompiled","precompiled_charsmap":")" + to_base64(spec.charsmap) +
                    "\"}");
  if (spec.remove_extra_whitespaces) {
    parts.emplace_back(R"({"type":"Strip","strip_left":true,"strip_right":true})");
    parts.emplace_back(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})");
  }
  const std::string mark(blank_mark);
  if (!spec.prefix_at_start_only && !spec.remove_extra_whitespaces) {
    // Metaspace would add no mark in front of a blank.
    if (spec.add_dummy_prefix) parts.push_back(R"({"type":"Prepend","prepend":")" + mark + "\"}");
    parts.push_back(R"({"type":"Replace","pattern":{"String":" "},"content":")" + mark + "\"}");
  } else {
    const char* scheme = !spec.add_dummy_prefix      ? "never"
                         : spec.prefix_at_start_only ? "first"
                                                     : "always";
    d.pre_tokenizer = parse_json(op,
                                 "{\"type\":\"Metaspace\",\"replacement\":\"" + mark +
                                     "\",\"prepend_scheme\":\"" + scheme +
                                     "\",\"split\":" + text_of(spec.unigram) + "}",
                                 d.name);
  }
  std::string list;
  for (const std::string& part : parts) list += (list.empty() ? "" : ",") + part;
  if (!list.empty())
    d.normalizer = parse_json(op, "{\"type\":\"Sequence\",\"normalizers\":[" + list + "]}", d.name);
  for (size_t id = 0; id < spec.types.size(); ++id) {
    if (spec.types[id] != PieceType::user_defined) continue;
    AddedToken token;
    token.content = d.vocabulary[id].text;
    token.id = int32_t(id);
    d.added.push_back(token);
  }
}

// Every way to cut a piece into two pieces is a merge; the pieces with high scores come first.
std::vector<std::pair<std::string, std::string>> merges_of(const Definition& d) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (const Token& token : d.vocabulary) ids.emplace(token.text, token.id);
  struct Cut {
    double score;
    int32_t left, right;
  };
  std::vector<Cut> cuts;
  for (const Token& token : d.vocabulary) {
    if (d.sentencepiece->types[size_t(token.id)] != PieceType::normal) continue;
    const std::string_view text = token.text;
    const size_t first = cuts.size();
    for (size_t at = 1; at < text.size(); ++at) {
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (left != ids.end() && right != ids.end())
        cuts.push_back({token.score, left->second, right->second});
    }
    std::sort(cuts.begin() + int64_t(first), cuts.end(), [](const Cut& a, const Cut& b) {
      return std::pair(a.left, a.right) < std::pair(b.left, b.right);
    });
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const Cut& a, const Cut& b) { return a.score > b.score; });
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Cut& cut : cuts)
    merges.emplace_back(d.vocabulary[size_t(cut.left)].text, d.vocabulary[size_t(cut.right)].text);
  return merges;
}

// Returns the definition of a SentencePiece model with the components of tokenizer.json.
Definition converted(Definition d) {
  set_components(d);
  const std::string fallback = text_of(d.sentencepiece->byte_fallback);
  if (d.sentencepiece->unigram) {
    const auto& types = d.sentencepiece->types;
    const auto unk = std::find(types.begin(), types.end(), PieceType::unknown) - types.begin();
    d.model = parse_json(op,
                         "{\"type\":\"Unigram\",\"unk_id\":" + std::to_string(unk) +
                             ",\"byte_fallback\":" + fallback + "}",
                         d.name);
  } else {
    d.merges = merges_of(d);
    d.model = parse_json(
        op,
        "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":" + quoted_json(d.special.unk) +
            ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":true,"
            "\"byte_fallback\":" +
            fallback + ",\"ignore_merges\":false}",
        d.name);
  }
  d.sentencepiece.reset();
  return d;
}

}  // namespace

std::string Compiled::tokenizer_json() const {
  if (definition.sentencepiece) return Compiled(converted(definition)).tokenizer_json();
  const Definition& d = definition;
  std::string json =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" + added_json(d.added);
  json += ",\"normalizer\":" + json_text(d.normalizer) +
          ",\"pre_tokenizer\":" + json_text(d.pre_tokenizer) +
          ",\"post_processor\":" + json_text(d.post_processor) +
          ",\"decoder\":" + json_text(d.decoder) + ",\"model\":";
  std::string options = json_text(d.model);
  options.pop_back();
  if (d.model["type"].is_null())
    options += std::string(options.size() > 1 ? "," : "") + "\"type\":\"BPE\"";
  json += options;
  model->append_tables(json);
  return json + "}}";
}

std::string Compiled::config_json() const {
  std::string json =
      R"({"tokenizer_class":"PreTrainedTokenizerFast","clean_up_tokenization_spaces":false)";
  const auto add = [&](const char* key, const std::optional<int32_t>& which) {
    if (which) json += std::string(",\"") + key + "\":" + quoted_json(*token(*which));
  };
  add("bos_token", bos);
  add("eos_token", eos);
  add("pad_token", pad);
  add("unk_token", unk);
  return json + "}";
}

}  // namespace tokenizers

void SubwordTokenizer::save(const std::string& path) const {
  if (path.ends_with(".json")) return write_atomically(path, data_->tokenizer_json());
  std::map<std::string, std::string> files = data_->definition.files;
  if (files.empty())
    files = {{"tokenizer.json", data_->tokenizer_json()},
             {"tokenizer_config.json", data_->config_json()}};
  std::error_code error;
  std::filesystem::create_directories(path, error);
  check(!error, tokenizers::op, path, ": cannot create the directory: ", error.message());
  for (const auto& [name, content] : files)
    write_atomically((std::filesystem::path(path) / name).string(), content);
}

}  // namespace stretto::nn
