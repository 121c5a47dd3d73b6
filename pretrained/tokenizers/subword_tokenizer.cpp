#include "pretrained/tokenizers/subword_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/input_file.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/files/families.h"
#include "pretrained/tokenizers/tokenizer_data.h"

namespace stretto::nn {

using namespace tokenizers;

namespace {

// Encodes the parts of one text.
class Encoding {
 public:
  Encoding(const Compiled& data, Compiled::Scratch& scratch, EncodeOptions options,
           std::vector<int64_t>& ids)
      : data_(data), scratch_(scratch), options_(options), ids_(ids) {}

  void add_text(std::string_view text, bool at_start) {
    if (text.empty()) return;
    size_t first = at_start ? utf8_size(text[0]) : 0;
    if (!data_.normalizer) return add_normalized({text, first});
    std::string changed(text);
    scratch_.match.limit_growth(text.size());
    data_.normalizer->apply(changed, first, scratch_.match);
    add_normalized({changed, at_start ? first : 0});
  }

 private:
  void add_normalized(const Word& text) {
    if (text.text.empty()) return;
    if (data_.normalized_tokens.empty()) return add_unescaped(text);
    for (const Part& part : data_.normalized_tokens.find(text.text, options_.allow_special)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        add_unescaped(text.part(part.begin, part.end));
      }
    }
  }

  void add_unescaped(const Word& text) {
    if (options_.escape.empty()) return add_words(text, 0);
    std::string plain;
    for (size_t begin = 0; begin < text.text.size();) {
      const size_t end = std::min(text.text.find(options_.escape, begin), text.text.size());
      plain += text.text.substr(begin, end - begin);
      begin = end + options_.escape.size();
    }
    add_words({plain, std::min(text.first, plain.size())}, 0);
  }

  void add_words(const Word& word, size_t stage) {
    if (stage == data_.pre_tokenizers.stages.size()) return add_word(word.text);
    auto next = [&, stage](const Word& part) { add_words(part, stage + 1); };
    data_.pre_tokenizers.stages[stage]->split(word, WordSink(next), scratch_.buffers[stage],
                                              scratch_.match);
  }

  void add_word(std::string_view word) {
    for (size_t at = 0; at < word.size();) {
      const size_t end = data_.model->end_of_part(word, at);
      add_part(word.substr(at, end - at));
      at = end;
    }
  }

  void add_part(std::string_view part) {
    if (part.size() > WordCache::longest_word)
      return data_.model->encode(part, ids_, scratch_.model);
    const uint64_t hash = hash_bytes(part);
    if (scratch_.cache.find(part, hash, ids_)) return;
    const size_t before = ids_.size();
    data_.model->encode(part, ids_, scratch_.model);
    scratch_.cache.add(part, hash, ids_.data() + before, ids_.size() - before);
  }

  const Compiled& data_;
  Compiled::Scratch& scratch_;
  const EncodeOptions options_;
  std::vector<int64_t>& ids_;
};

}  // namespace

SubwordTokenizer SubwordTokenizer::load(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return SubwordTokenizer(read_folder(path));
  const InputFile file(op, path);
  char first = 0;
  if (file.size() > 0) file.read(&first, 1, 0);
  // A SentencePiece model begins with the tag of its first piece.
  return SubwordTokenizer(first == '\n' ? read_sentencepiece(path) : read_tokenizer_json(path));
}

SubwordTokenizer::SubwordTokenizer(Definition definition)
    : data_(std::make_shared<const Compiled>(std::move(definition))) {}

std::vector<int64_t> SubwordTokenizer::encode(std::string_view text, EncodeOptions options) const {
  check(text.size() < (size_t(1) << 31), op, "a text of ", text.size(),
        " bytes; must be less than 2 GB");
  const Compiled& data = *data_;
  std::string storage;
  text = repaired_utf8(text, storage);
  std::vector<int64_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (options.add_special_tokens) ids = data.around.before;
  Compiled::Lease scratch(data);
  Encoding encoding(data, *scratch, options, ids);
  if (data.raw_tokens.empty()) {
    encoding.add_text(text, true);
  } else {
    for (const Part& part : data.raw_tokens.find(text, options.allow_special)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encoding.add_text(text.substr(part.begin, part.end - part.begin), part.begin == 0);
      }
    }
  }
  if (options.add_special_tokens)
    ids.insert(ids.end(), data.around.after.begin(), data.around.after.end());
  return ids;
}

std::string SubwordTokenizer::escape_special(std::string_view text, std::string_view escape,
                                             std::string_view source) const {
  check(!escape.empty() && text.find(escape) == text.npos, op,
        "the escape is empty or part of the text; pass characters that the text does not have");
  const std::vector<bool> chosen = data_->control_tokens(source);
  std::string escaped;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;  // of the character
    while (end < text.size() && (uint8_t(text[end]) & 0xC0) == 0x80) ++end;
    escaped += text.substr(at, end - at);
    const size_t size = data_->written_tokens.size_at(text, at, chosen);
    if (size > end - at)
      escaped += escape;
    else if (size > 0)
      fail(op, in_quotes(std::string(text.substr(at, size))),
           " in the text is a special token of one character, which cannot be escaped");
    at = end;
  }
  // A normalizer or the model can still yield such a token.
  const auto& pieces = data_->definition.sentencepiece;
  for (const int64_t id : encode(escaped, {.add_special_tokens = false, .escape = escape})) {
    const auto added = data_->added_by_id.find(id);
    const bool controls = added != data_->added_by_id.end()
                              ? chosen[added->second] && id != unk()
                              : pieces && pieces->types[size_t(id)] == PieceType::user_defined &&
                                    is_marker(*token(id)) && source.find(*token(id)) != source.npos;
    check(!controls, op, "the text is encoded with the control token ", in_quotes(*token(id)),
          ", which cannot be escaped");
  }
  return escaped;
}

std::string SubwordTokenizer::decode(const std::vector<int64_t>& ids, DecodeOptions options) const {
  for (const int64_t id : ids) check(id >= 0, op, "token ", id, "; must not be negative");
  return data_->text_of(ids, options);
}

int64_t SubwordTokenizer::size() const { return data_->size; }

std::optional<std::string> SubwordTokenizer::token(int64_t id) const {
  const auto text = data_->token(id);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

std::optional<int64_t> SubwordTokenizer::id(std::string_view token) const {
  return data_->id(token);
}

bool SubwordTokenizer::is_special(int64_t id) const {
  const auto found = data_->added_by_id.find(id);
  return found != data_->added_by_id.end() && data_->definition.added[found->second].special;
}

std::optional<int64_t> SubwordTokenizer::bos() const { return data_->bos; }
std::optional<int64_t> SubwordTokenizer::eos() const { return data_->eos; }
std::optional<int64_t> SubwordTokenizer::pad() const { return data_->pad; }
std::optional<int64_t> SubwordTokenizer::unk() const { return data_->unk; }

DecodeStream::DecodeStream(SubwordTokenizer tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

std::string DecodeStream::add(int64_t id) {
  check(id >= 0, op, "token ", id, "; must not be negative");
  const Compiled& data = *tokenizer_.data_;
  states_.resize(data.decoders.size());
  const Compiled::Lease scratch(data);
  std::string text;
  Decoding decoding{data.decoders, states_, (*scratch).match, text, true};
  data.pass(id, options_, decoding);
  return text;
}

std::string DecodeStream::finish() {
  std::string text;
  if (states_.empty()) return text;
  const Compiled& data = *tokenizer_.data_;
  const Compiled::Lease scratch(data);
  Decoding{data.decoders, states_, (*scratch).match, text, true}.finish();
  states_.clear();
  return text;
}

}  // namespace stretto::nn
