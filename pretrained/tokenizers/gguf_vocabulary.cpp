// The tokenizer in the metadata of a GGUF file.
#include <cmath>

#include "core/error.h"
#include "core/one_line.h"
#include "pretrained/tokenizers/files/families.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/tokenizer_data.h"

namespace stretto::nn {

using namespace tokenizers;

namespace {

PieceType type_of(const GgufVocabulary& v, size_t id) {
  return v.token_types.empty() ? PieceType::normal : PieceType(v.token_types[id]);
}

std::string text_of(const GgufVocabulary& v, const std::optional<int64_t>& id, const char* key) {
  if (!id) return "";
  check(*id >= 0 && size_t(*id) < v.tokens.size(), op, v.name, ": ", key, " is ", *id,
        "; must be 0 to ", v.tokens.size() - 1);
  return v.tokens[size_t(*id)];
}

void add_tokens(const GgufVocabulary& v, Definition& d) {
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const PieceType type = type_of(v, id);
    if (type != PieceType::control && type != PieceType::user_defined) continue;
    AddedToken token;
    token.content = v.tokens[id];
    token.id = int32_t(id);
    token.special = type == PieceType::control;
    if (!token.content.empty()) d.added.push_back(std::move(token));
  }
}

struct FamilyName {
  const char* pre;
  Family family;
};
// The first name of a family is the one that is written.
constexpr FamilyName family_names[] = {{"gpt-2", Family::gpt2},
                                       {"gpt2", Family::gpt2},
                                       {"olmo", Family::gpt2},
                                       {"mpt", Family::gpt2},
                                       {"gpt-neox", Family::gpt2},
                                       {"phi-2", Family::gpt2},
                                       {"llama-bpe", Family::llama3},
                                       {"llama-v3", Family::llama3},
                                       {"llama3", Family::llama3},
                                       {"qwen2", Family::qwen2},
                                       {"deepseek-r1-qwen", Family::qwen2},
                                       {"smollm", Family::smollm},
                                       {"bloom", Family::bloom}};

Family family_of(const GgufVocabulary& v) {
  std::string known;
  for (const FamilyName& name : family_names) {
    if (v.pre == name.pre) return name.family;
    known += std::string(known.empty() ? "" : ", ") + name.pre;
  }
  fail(op, v.name, ": tokenizer.ggml.pre ", in_quotes(v.pre), " is not supported; supported are ",
       known);
}

void set_bpe(const GgufVocabulary& v, Definition& d) {
  const Family family = family_of(v);
  set_byte_level_bpe(d, family);
  for (const std::string& merge : v.merges) {
    const size_t blank = merge.find(' ', 1);
    check(blank != std::string::npos && merge.find(' ', blank + 1) == std::string::npos, op, v.name,
          ": the merge ", in_quotes(merge), " must be two tokens with one blank between them");
    d.merges.emplace_back(merge.substr(0, blank), merge.substr(blank + 1));
  }
  add_tokens(v, d);
  set_template(d, v.add_bos.value_or(family == Family::llama3) ? d.special.bos : "",
               v.add_eos.value_or(false) ? d.special.eos : "");
}

void set_pieces(const GgufVocabulary& v, Definition& d) {
  const bool unigram = v.model == "t5";
  check(v.scores.size() == v.tokens.size(), op, v.name, ": has ", v.scores.size(), " scores for ",
        v.tokens.size(), " tokens");
  SentencePiece spec;
  spec.unigram = unigram;
  spec.charsmap = v.charsmap;
  spec.add_dummy_prefix = v.add_space_prefix.value_or(true);
  spec.remove_extra_whitespaces = v.remove_extra_whitespaces.value_or(unigram);
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    spec.types.push_back(type_of(v, id));
    spec.byte_fallback |= spec.types.back() == PieceType::byte;
    check(std::isfinite(v.scores[id]), op, v.name, ": the score of the token ", id,
          " is not finite");
    d.vocabulary[id].score = double(v.scores[id]);
  }
  if (v.unk && size_t(*v.unk) < spec.types.size()) spec.types[size_t(*v.unk)] = PieceType::unknown;
  d.sentencepiece = std::move(spec);
  set_sentencepiece(d);
  set_template(d, v.add_bos.value_or(!unigram) ? d.special.bos : "",
               v.add_eos.value_or(unigram) ? d.special.eos : "");
}

// GGUF marks the beginning of words with U+2581 instead of their continuation with ##.
void set_words(const GgufVocabulary& v, Definition& d) {
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    std::string& text = d.vocabulary[id].text;
    if (text.starts_with(blank_mark)) {
      text.erase(0, blank_mark.size());
    } else if (type_of(v, id) == PieceType::normal &&
               !(text.starts_with('[') && text.ends_with(']'))) {
      text.insert(0, "##");
    }
  }
  set_bert(d, true, true, {});
  add_tokens(v, d);
  const std::string cls = text_of(v, v.cls ? v.cls : v.bos, "tokenizer.ggml.cls_token_id");
  const std::string sep = text_of(v, v.sep ? v.sep : v.eos, "tokenizer.ggml.seperator_token_id");
  set_template(d, cls.empty() ? "[CLS]" : cls, sep.empty() ? "[SEP]" : sep);
}

}  // namespace

SubwordTokenizer SubwordTokenizer::from_gguf(const GgufVocabulary& v) {
  check(!v.tokens.empty(), op, v.name, ": has no tokenizer.ggml.tokens");
  check(int64_t(v.tokens.size()) <= max_ids, op, v.name, ": has more than ", max_ids, " tokens");
  check(v.token_types.empty() || v.token_types.size() == v.tokens.size(), op, v.name, ": has ",
        v.token_types.size(), " token types for ", v.tokens.size(), " tokens");
  for (const int32_t type : v.token_types)
    check(type >= 1 && type <= 6, op, v.name, ": the token type ", type, "; must be 1 to 6");
  Definition d;
  d.name = v.name;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    check(v.tokens[id].size() <= max_token_bytes, op, v.name, ": the token ", id, " is too long");
    d.vocabulary.push_back({v.tokens[id], int32_t(id), 0});
  }
  d.special.bos = text_of(v, v.bos, "tokenizer.ggml.bos_token_id");
  d.special.eos = text_of(v, v.eos, "tokenizer.ggml.eos_token_id");
  d.special.pad = text_of(v, v.pad, "tokenizer.ggml.padding_token_id");
  d.special.unk = text_of(v, v.unk, "tokenizer.ggml.unknown_token_id");
  if (v.model == "gpt2") {
    set_bpe(v, d);
  } else if (v.model == "llama" || v.model == "t5") {
    set_pieces(v, d);
  } else if (v.model == "bert") {
    set_words(v, d);
  } else {
    fail(op, v.name, ": tokenizer.ggml.model ", in_quotes(v.model),
         " is not supported; supported are gpt2, llama, bert and t5");
  }
  return SubwordTokenizer(std::move(d));
}

namespace {

// How a pre-tokenizer of byte-level BPE splits words, without fields that do not change ids.
std::string splits_of(const Json& json) {
  const std::string& type = json["type"].text;
  if (type == "ByteLevel")
    return str(type, is_true(json["use_regex"], true), is_true(json["add_prefix_space"], true));
  if (type == "Split") return type + json_text(json["pattern"]) + json["behavior"].text;
  if (type == "Digits") return str(type, is_true(json["individual_digits"], false));
  if (type != "Sequence") return json_text(json);
  std::string text;
  for (const Json& part : json["pretokenizers"].items) text += splits_of(part) + ";";
  return text;
}

const char* name_of_family(const Definition& d) {
  for (const FamilyName& name : family_names) {
    Definition family;
    set_byte_level_bpe(family, name.family);
    if (splits_of(d.pre_tokenizer) == splits_of(family.pre_tokenizer) &&
        is_true(d.model["ignore_merges"], false) == is_true(family.model["ignore_merges"], false) &&
        (d.normalizer.is_null() || json_text(d.normalizer) == json_text(family.normalizer)))
      return name.pre;
  }
  return nullptr;
}

}  // namespace

GgufVocabulary SubwordTokenizer::to_gguf() const {
  const Definition& d = data_->definition;
  const char* pre = d.sentencepiece ? nullptr : name_of_family(d);
  check(pre != nullptr, op, d.name,
        ": cannot be written to a GGUF file, which has byte-level BPE of known families only");
  GgufVocabulary v{.name = d.name, .model = "gpt2", .pre = pre};
  const Json json = parse_json(op, data_->tokenizer_json(), d.name);
  for (int64_t id = 0; id < size(); ++id) {
    const auto text = token(id);
    v.tokens.push_back(text.value_or(str("[PAD", id, "]")));
    v.token_types.push_back(int32_t(text ? PieceType::normal : PieceType::unused));
  }
  for (const AddedToken& token : d.added)
    v.token_types[size_t(token.id)] =
        int32_t(token.special ? PieceType::control : PieceType::user_defined);
  for (const Json& pair : json["model"]["merges"].items)
    v.merges.push_back(pair.items.at(0).text + " " + pair.items.at(1).text);
  v.bos = bos();
  v.eos = eos();
  v.pad = pad();
  v.unk = unk();
  const std::vector<int64_t> around = encode("");
  v.add_bos = !around.empty() && around.front() == bos();
  v.add_eos = around.size() > size_t(*v.add_bos) && around.back() == eos();
  check(around.size() == size_t(*v.add_bos) + size_t(*v.add_eos), op, d.name,
        ": cannot be written to a GGUF file: it adds other tokens than bos and eos to a text");
  return v;
}

}  // namespace stretto::nn
