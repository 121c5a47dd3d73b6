// Reads a directory as published: the tokenizer and the files that name its special tokens.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/one_line.h"
#include "pretrained/tokenizers/files/families.h"

namespace stretto::nn::tokenizers {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns a JSON file as an object; an empty one if there is no such file.
Json optional_object(const std::string& path) {
  Json json;
  json.kind = Json::Kind::object;
  if (!exists(path)) return json;
  json = parse_json(op, read_text_file(path), path);
  check(json.is_object(), op, path, ": must be an object");
  return json;
}

void read_names(const Json& from, SpecialNames& to) {
  const auto set = [&](std::string& name, const char* key) {
    if (const std::string text = token_text(from[key]); !text.empty()) name = text;
  };
  set(to.bos, "bos_token");
  set(to.eos, "eos_token");
  set(to.pad, "pad_token");
  set(to.unk, "unk_token");
}

// The named special tokens of a vocabulary without added tokens.
void add_named_tokens(Definition& d) {
  for (const std::string& text : {d.special.bos, d.special.eos, d.special.pad, d.special.unk}) {
    const auto is_text = [&](const Token& token) { return token.text == text; };
    const auto found = std::find_if(d.vocabulary.begin(), d.vocabulary.end(), is_text);
    if (text.empty() || found == d.vocabulary.end()) continue;
    AddedToken token;
    token.content = text;
    token.id = found->id;
    token.special = true;
    add_token(d, token);
  }
}

// Older files name a token that the vocabulary does not have; it has no role then.
void drop_unknown_names(Definition& d) {
  for (std::string* text : {&d.special.bos, &d.special.eos, &d.special.pad, &d.special.unk}) {
    const bool known = std::any_of(d.added.begin(), d.added.end(),
                                   [&](const AddedToken& t) { return t.content == *text; }) ||
                       std::any_of(d.vocabulary.begin(), d.vocabulary.end(),
                                   [&](const Token& t) { return t.text == *text; });
    if (!known) text->clear();
  }
}

Definition read_bpe(const std::string& vocabulary, const std::string& merges,
                    const std::string& type) {
  Definition d;
  d.name = vocabulary;
  read_bpe_files(vocabulary, merges, d);
  const bool is_qwen = type.starts_with("Qwen2Tokenizer");
  check(type.empty() || is_qwen || type.starts_with("GPT2Tokenizer"), op, vocabulary,
        ": the tokenizer_class ", in_quotes(type), " is not supported without a tokenizer.json");
  set_byte_level_bpe(d, is_qwen ? Family::qwen2 : Family::gpt2);
  const char* end = "<|endoftext|>";
  const auto is_end = [&](const Token& token) { return token.text == end; };
  if (std::any_of(d.vocabulary.begin(), d.vocabulary.end(), is_end)) {
    d.special = {is_qwen ? "" : end, end, is_qwen ? end : "", is_qwen ? "" : end};
  }
  return d;
}

Definition read_word_piece(const std::string& path, const Json& config) {
  Definition d;
  d.name = path;
  const std::string text = read_text_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    check(int64_t(d.vocabulary.size()) < max_ids && line.size() <= max_token_bytes, op, path,
          ": too many or too long tokens");
    d.vocabulary.push_back({std::move(line), int32_t(d.vocabulary.size()), 0});
    at = end + 1;
  }
  set_bert(d, is_true(config["do_lower_case"], true),
           is_true(config["tokenize_chinese_chars"], true), config["strip_accents"]);
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const auto is_name = [&](const Token& token) { return token.text == name; };
    const auto found = std::find_if(d.vocabulary.begin(), d.vocabulary.end(), is_name);
    if (found == d.vocabulary.end()) continue;
    AddedToken token;
    token.content = name;
    token.id = found->id;
    token.special = true;
    add_token(d, token);
  }
  d.special.pad = "[PAD]";
  d.special.unk = "[UNK]";
  drop_unknown_names(d);
  set_template(d, "[CLS]", "[SEP]");
  return d;
}

// Adds [MASK], which the files of DeBERTa's SentencePiece models do not have, behind their tokens.
void add_mask(Definition& d) {
  AddedToken token;
  token.content = "[MASK]";
  token.id = int32_t(d.vocabulary.size());
  token.special = true;
  const auto is_mask = [&](const Token& other) { return other.text == token.content; };
  if (std::none_of(d.vocabulary.begin(), d.vocabulary.end(), is_mask)) add_token(d, token);
}

// Returns transformers' class of the tokenizer: by tokenizer_config.json, or else by the model type.
std::string class_of(const Json& config, const Json& model) {
  for (const Json* file : {&config, &model})
    if (const std::string& type = (*file)["tokenizer_class"].text; !type.empty()) return type;
  const std::string& type = model["model_type"].text;
  return type == "deberta-v2" ? "DebertaV2Tokenizer" : type == "t5" ? "T5Tokenizer" : "";
}

// Adds what transformers' class of a SentencePiece model does.
void set_class(Definition& d, const Json& config, const Json& model) {
  std::string type = class_of(config, model);
  if (type.ends_with("Fast")) type.resize(type.size() - 4);
  const bool is_llama =
      type == "LlamaTokenizer" || type == "CodeLlamaTokenizer" || type == "GemmaTokenizer";
  if (is_true(config["legacy"], true) == false) d.sentencepiece->prefix_at_start_only = true;
  if (type == "T5Tokenizer" || type == "MT5Tokenizer") return set_template(d, "", d.special.eos);
  if (type == "AlbertTokenizer" || type == "DebertaV2Tokenizer") {
    check(type != "DebertaV2Tokenizer" || (!is_true(config["do_lower_case"], false) &&
                                           !is_true(config["split_by_punct"], false)),
          op, d.name, ": do_lower_case and split_by_punct are not supported for ", type);
    if (type == "DebertaV2Tokenizer") add_mask(d);
    return set_template(d, "[CLS]", "[SEP]");
  }
  check(type.empty() || is_llama, op, d.name, ": the tokenizer_class ", in_quotes(type),
        " is not supported without a tokenizer.json");
  set_template(d, is_true(config["add_bos_token"], is_llama) ? d.special.bos : "",
               is_true(config["add_eos_token"], false) ? d.special.eos : "");
}

std::string find_model(const std::string& folder) {
  for (const char* name : {"tokenizer.model", "spiece.model", "spm.model"})
    if (exists(folder + "/" + name)) return folder + "/" + name;
  std::string only;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".model") continue;
    check(only.empty(), op, folder, ": has several files *.model");
    only = entry.path().string();
  }
  return only;
}

}  // namespace

Definition read_folder(const std::string& folder) {
  const auto in = [&](const char* name) { return folder + "/" + name; };
  const Json config = optional_object(in("tokenizer_config.json"));
  const Json map = optional_object(in("special_tokens_map.json"));
  Definition d;
  bool is_complete = false;
  std::string model;
  if (exists(in("tokenizer.json"))) {
    d = read_tokenizer_json(in("tokenizer.json"));
    is_complete = true;
  } else if (exists(in("vocab.json")) && exists(in("merges.txt"))) {
    d = read_bpe(in("vocab.json"), in("merges.txt"), config["tokenizer_class"].text);
  } else if (exists(in("encoder.json")) && exists(in("vocab.bpe"))) {
    d = read_bpe(in("encoder.json"), in("vocab.bpe"), config["tokenizer_class"].text);
  } else if (exists(in("vocab.txt"))) {
    d = read_word_piece(in("vocab.txt"), config);
  } else if (model = find_model(folder); !model.empty()) {
    d = read_sentencepiece(model);
  } else {
    fail(op, folder,
         ": has no tokenizer; supported are tokenizer.json, vocab.json with merges.txt, vocab.txt "
         "and *.model");
  }
  // transformers reads special_tokens_map.json and added_tokens.json only without
  // added_tokens_decoder, and then last.
  const bool has_decoder = config["added_tokens_decoder"].is_object();
  read_names(has_decoder ? map : config, d.special);
  read_names(has_decoder ? config : map, d.special);
  const Json added = has_decoder ? Json() : optional_object(in("added_tokens.json"));
  add_tokens(d, {config, has_decoder ? Json() : map, added}, folder, is_complete);
  drop_unknown_names(d);
  if (is_complete) set_options(d, config);
  if (!is_complete) add_named_tokens(d);
  if (d.sentencepiece) set_class(d, config, optional_object(in("config.json")));
  for (const char* name : directory_files)
    if (exists(in(name))) d.files[name] = read_text_file(in(name));
  if (!model.empty()) d.files[fs::path(model).filename().string()] = read_text_file(model);
  return d;
}

}  // namespace stretto::nn::tokenizers
