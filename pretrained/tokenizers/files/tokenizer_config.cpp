// What transformers changes in a tokenizer.json: the tokens and options of tokenizer_config.json,
// and of special_tokens_map.json if the former has no added_tokens_decoder.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/one_line.h"
#include "pretrained/tokenizers/files/families.h"

namespace stretto::nn::tokenizers {
namespace {

bool is_flag(const Json& json) { return json.kind == Json::Kind::boolean; }

// Reads a token, which is a string or an object; its content is empty if it is neither.
AddedToken token_of(const Json& json, bool special) {
  AddedToken token;
  token.content = token_text(json);
  token.single_word = is_true(json["single_word"], false);
  token.lstrip = is_true(json["lstrip"], false);
  token.rstrip = is_true(json["rstrip"], false);
  token.special = special;
  token.normalized = is_true(json["normalized"], !special);
  return token;
}

int32_t next_id(const Definition& d) {
  int32_t last = -1;
  for (const Token& token : d.vocabulary) last = std::max(last, token.id);
  for (const AddedToken& token : d.added) last = std::max(last, token.id);
  return last + 1;
}

// The tokens with a role, in transformers' order: bos_token, … and others with names like these.
std::vector<AddedToken> named_tokens(const TokenFiles& files) {
  std::vector<AddedToken> tokens;
  const std::vector<std::string> roles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
  const auto add = [&](const Json& json) {
    AddedToken token = token_of(json, true);
    if (!token.content.empty()) tokens.push_back(std::move(token));
  };
  for (const std::string& role : roles)
    add(files.special_map[role].is_null() ? files.config[role] : files.special_map[role]);
  for (const Json* file : {&files.config, &files.special_map})
    for (const auto& [key, value] : file->members)
      if (key.ends_with("_token") && std::find(roles.begin(), roles.end(), key) == roles.end())
        add(value);
  for (const auto& [key, value] : files.config["extra_special_tokens"].members) add(value);
  return tokens;
}

// The tokens of lists.
std::vector<AddedToken> extra_tokens(const TokenFiles& files) {
  const Json& extra = files.config["extra_special_tokens"];
  const Json& more = extra.items.empty() && extra.members.empty()
                         ? files.config["additional_special_tokens"]
                         : extra;
  std::vector<AddedToken> tokens;
  for (const Json* list : {&more, &files.special_map["extra_special_tokens"],
                           &files.special_map["additional_special_tokens"]})
    for (const Json& json : list->items) {
      AddedToken token = token_of(json, true);
      if (!token.content.empty()) tokens.push_back(std::move(token));
    }
  return tokens;
}

using Texts = std::unordered_set<std::string>;

void insert(Texts& texts, const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) texts.insert(token.content);
}

// The tokens of added_tokens_decoder, and of added_tokens.json, with their ids.
std::vector<AddedToken> tokens_with_ids(const TokenFiles& files, const std::string& path) {
  std::vector<AddedToken> tokens;
  for (const auto& [key, value] : files.config["added_tokens_decoder"].members) {
    AddedToken token = token_of(value, is_true(value["special"], false));
    const auto end = std::from_chars(key.data(), key.data() + key.size(), token.id);
    check(end.ec == std::errc() && end.ptr == key.data() + key.size() && token.id >= 0 &&
              token.id < max_ids && value.is_object() && !token.content.empty(),
          op, path, "/tokenizer_config.json: added_tokens_decoder has the malformed token ",
          in_quotes(key));
    tokens.push_back(std::move(token));
  }
  Texts known, special;
  insert(known, tokens);
  insert(special, named_tokens(files));
  insert(special, extra_tokens(files));
  for (const auto& [text, id] : files.added.members) {
    check(
        id.kind == Json::Kind::integer && id.integer >= 0 && id.integer < max_ids && !text.empty(),
        op, path, "/added_tokens.json: the token ", in_quotes(text), " has no id of 0 to ",
        max_ids - 1);
    if (!known.insert(text).second) continue;
    AddedToken token;
    token.content = text;
    token.id = int32_t(id.integer);
    token.special = special.contains(text);
    token.normalized = !token.special;
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

// Calls `f` for a component, or for those of a sequence.
template <class F>
void each_component(Json& json, const char* list, F&& f) {
  if (json["type"].text != "Sequence") return f(json);
  for (auto& [key, value] : json.members)
    if (key == list)
      for (Json& item : value.items) each_component(item, list, f);
}

void set(Json& component, const char* field, const Json& value) {
  for (auto& [key, old] : component.members)
    if (key == field) {
      old = value;
      return;
    }
  component.members.push_back({field, value});
}

// Options of BERT's classes.
void set_normalizer(Definition& d, const Json& config, const std::string& type) {
  bool lowers = false;
  each_component(d.normalizer, "normalizers", [&](Json& component) {
    const std::string& kind = component["type"].text;
    lowers = lowers || kind == "Lowercase" || kind == "BertNormalizer";
    if (kind != "BertNormalizer") return;
    for (const auto& [key, value] : config.members) {
      if (key == "do_lower_case" && is_flag(value)) set(component, "lowercase", value);
      if (key == "tokenize_chinese_chars" && is_flag(value))
        set(component, "handle_chinese_chars", value);
      if (key == "strip_accents") set(component, "strip_accents", value);
    }
  });
  const bool has_option = type == "AlbertTokenizer" || type == "XLNetTokenizer" ||
                          type == "DebertaV2Tokenizer" || type == "FNetTokenizer" ||
                          type == "RemBertTokenizer";
  check(!has_option || is_true(config["do_lower_case"], lowers) == lowers, op, d.name,
        ": do_lower_case of tokenizer_config.json contradicts the normalizer");
}

// add_prefix_space of the classes with ByteLevel or Metaspace.
void set_prefix(Definition& d, const Json& config, const std::string& type) {
  const Json& adds = config["add_prefix_space"];
  if (!is_flag(adds)) return;
  bool is_byte_level = false, has_metaspace = false, prepends = false;
  each_component(d.pre_tokenizer, "pretokenizers", [&](Json& component) {
    is_byte_level = is_byte_level || component["type"].text == "ByteLevel";
    if (component["type"].text != "Metaspace") return;
    has_metaspace = true;
    const std::string& scheme = component["prepend_scheme"].text;
    prepends = prepends ||
               (scheme.empty() ? is_true(component["add_prefix_space"], true) : scheme != "never");
  });
  each_component(d.normalizer, "normalizers", [&](Json& component) {
    prepends = prepends || component["type"].text == "Prepend";
  });
  if (is_byte_level) {
    if (type == "LlamaTokenizer") return;  // transformers uses no class for these files
    each_component(d.pre_tokenizer, "pretokenizers", [&](Json& component) {
      if (component["type"].text == "ByteLevel") set(component, "add_prefix_space", adds);
    });
    return;
  }
  check(!(has_metaspace || prepends) || adds.truth == prepends, op, d.name,
        ": add_prefix_space of tokenizer_config.json contradicts this file");
}

}  // namespace

std::string token_text(const Json& json) {
  return json.is_object() ? json["content"].text : json.text;
}

bool is_true(const Json& json, bool fallback) {
  return json.kind == Json::Kind::boolean ? json.truth : fallback;
}

void add_tokens(Definition& d, const TokenFiles& files, const std::string& path,
                bool adds_unknown) {
  const bool has_decoder = files.config["added_tokens_decoder"].is_object();
  const std::vector<AddedToken> with_ids = tokens_with_ids(files, path);
  Texts texts_with_ids;
  insert(texts_with_ids, with_ids);
  std::unordered_map<std::string, size_t> places;  // in d.added
  for (size_t i = 0; i < d.added.size(); ++i) places.emplace(d.added[i].content, i);
  for (const AddedToken& token : with_ids) {
    const auto [found, is_new] = places.emplace(token.content, d.added.size());
    if (is_new) {
      d.added.push_back(token);
      continue;
    }
    AddedToken* old = &d.added[found->second];
    check(old->id == token.id, op, path, ": the added token ", in_quotes(token.content),
          " has the id ", token.id, ", but ", old->id, " in ",
          std::filesystem::path(d.name).filename().string());
    const bool was_special = old->special;  // and stays so in tokenizers
    if (has_decoder) *old = token;
    old->special |= was_special;
  }
  // Of tokens that are new here the last one with a text counts.
  const auto known = d.added.size();
  std::unordered_map<std::string_view, int32_t> vocabulary;  // filled for the first new token
  int32_t new_id = next_id(d);
  const auto add = [&](AddedToken token, bool has_role) {
    if (const auto found = places.find(token.content); found != places.end()) {
      AddedToken& old = d.added[found->second];
      token.id = old.id;
      if (found->second >= known) {
        old = std::move(token);
      } else if (has_role && (!has_decoder || texts_with_ids.contains(token.content))) {
        old.special = true;
      }
      return;
    }
    if (vocabulary.empty())
      for (const Token& piece : d.vocabulary) vocabulary.emplace(piece.text, piece.id);
    const auto piece = vocabulary.find(token.content);
    if (piece == vocabulary.end() && !adds_unknown) return;
    token.id = piece != vocabulary.end() ? piece->second : new_id++;
    places.emplace(token.content, d.added.size());
    d.added.push_back(std::move(token));
  };
  for (AddedToken& token : named_tokens(files)) add(std::move(token), true);
  for (AddedToken& token : extra_tokens(files)) add(std::move(token), false);
}

void set_options(Definition& d, const Json& config) {
  std::string type = config["tokenizer_class"].text;
  if (type.ends_with("Fast")) type.resize(type.size() - 4);
  const bool has_class =
      !type.empty() && type != "PreTrainedTokenizer" && type != "TokenizersBackend";
  if (!has_class) return;
  set_normalizer(d, config, type);
  set_prefix(d, config, type);
}

}  // namespace stretto::nn::tokenizers
