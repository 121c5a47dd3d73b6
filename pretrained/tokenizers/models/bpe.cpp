// Byte-pair encoding (Sennrich, Haddow and Birch 2016) with the options of tokenizer.json.
#include <algorithm>
#include <array>
#include <cstdio>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/models/merge_table.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/text/byte_level.h"

namespace stretto::nn::tokenizers {
namespace {

struct Pair {
  int32_t left, right;
};

class Bpe : public Model {
 public:
  Bpe(const Definition& d, bool byte_level)
      : Model({d.vocabulary, d.name}), byte_level_(byte_level) {
    JsonReader fields(op, d.name + ": model BPE", d.model);
    fields.ignore({"type", "vocab", "merges"});
    read_options(fields);
    if (byte_level) read_bytes(fields);
    add_merges(d, fields);
    splits_at_marks_ = !byte_level && !ignore_merges_ && prefix_.empty() && suffix_.empty() &&
                       vocabulary.find(blank_mark) >= 0 && marks_only_begin_words(vocabulary);
  }

  void encode(std::string_view word, std::vector<int64_t>& ids, ModelScratch& s) const override {
    if (ignore_merges_) {
      const int32_t id = byte_level_ ? words_.find(word) : vocabulary.find(word);
      if (id >= 0) return ids.push_back(id);
    }
    s.symbols.clear();
    bool pending = false;
    if (byte_level_) {
      for (const char c : word) add(bytes_[uint8_t(c)], {}, pending, s);
    } else {
      for (size_t at = 0; at < word.size();) add_character(word, at, pending, s);
    }
    if (pending) s.symbols.push_back(unk_);
    merges_.apply(s);
    ids.insert(ids.end(), s.symbols.begin(), s.symbols.end());
  }

  size_t end_of_part(std::string_view text, size_t begin) const override {
    return splits_at_marks_ ? next_marked_word(text, begin) : text.size();
  }

  void append_tables(std::string& json) const override {
    json += ",\"vocab\":" + vocabulary_json(vocabulary) + ",\"merges\":[";
    for (size_t i = 0; i < pairs_.size(); ++i) {
      json += i > 0 ? ",[" : "[";
      json += quoted_json(vocabulary.text(pairs_[i].left));
      json += ',';
      json += quoted_json(vocabulary.text(pairs_[i].right));
      json += ']';
    }
    json += ']';
  }

 private:
  void read_options(JsonReader& fields) {
    const Json& dropout = fields.value("dropout");
    if (!dropout.is_null() && dropout.number != 0) fields.refuse("dropout is not supported");
    prefix_ = fields.text("continuing_subword_prefix", "");
    suffix_ = fields.text("end_of_word_suffix", "");
    fuse_unknown_ = fields.flag("fuse_unk", false);
    byte_fallback_ = fields.flag("byte_fallback", false);
    ignore_merges_ = fields.flag("ignore_merges", false);
    const std::string unk = fields.text("unk_token", "");
    fields.finish();
    if (!unk.empty()) {
      unk_ = vocabulary.find(unk);
      if (unk_ < 0) fields.refuse("unk_token " + in_quotes(unk) + " is not in the vocabulary");
    }
    if (byte_fallback_) byte_pieces_ = byte_pieces(vocabulary);
  }

  void read_bytes(JsonReader& fields) {
    if (!prefix_.empty() || !suffix_.empty() || byte_fallback_)
      fields.refuse("prefixes, suffixes and byte_fallback do not go with ByteLevel");
    for (size_t byte = 0; byte < 256; ++byte)
      bytes_[byte] = vocabulary.find(byte_character(uint8_t(byte)));
    for (int32_t id = 0; ignore_merges_ && id < vocabulary.size(); ++id) {
      if (!vocabulary.has(id)) continue;
      if (const auto bytes = bytes_of_characters(vocabulary.text(id))) words_.insert(*bytes, id);
    }
  }

  void add_merges(const Definition& d, const JsonReader& fields) {
    merges_ = MergeTable(d.merges.size());
    pairs_.reserve(d.merges.size());
    for (const auto& [left, right] : d.merges) {
      const Pair pair{vocabulary.find(left), vocabulary.find(right)};
      const bool strips = !prefix_.empty() && right.starts_with(prefix_);
      const std::string both = left + (strips ? right.substr(prefix_.size()) : right);
      const int32_t symbol = vocabulary.find(both);
      if (pair.left < 0 || pair.right < 0 || symbol < 0)
        fields.refuse("the merge " + in_quotes(left + " " + right) + ": " +
                      in_quotes(pair.left < 0    ? left
                                : pair.right < 0 ? right
                                                 : both) +
                      " is not in the vocabulary");
      merges_.set(pair.left, pair.right, {uint32_t(pairs_.size()), symbol});
      pairs_.push_back(pair);
    }
  }

  // Adds a symbol. An unknown one waits, because the next one may be fused with it.
  void add(int32_t id, std::string_view character, bool& pending, ModelScratch& s) const {
    if (id >= 0) {
      if (std::exchange(pending, false)) s.symbols.push_back(unk_);
      s.symbols.push_back(id);
      return;
    }
    if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                      [&](char c) { return byte_pieces_[uint8_t(c)] >= 0; })) {
      for (const char c : character) s.symbols.push_back(byte_pieces_[uint8_t(c)]);
      return;
    }
    if (unk_ < 0) return;
    if (pending && !fuse_unknown_) s.symbols.push_back(unk_);
    pending = true;
  }

  void add_character(std::string_view word, size_t& at, bool& pending, ModelScratch& s) const {
    const size_t size = utf8_size(word[at]);
    const std::string_view character = word.substr(at, size);
    const bool first = at == 0, last = at + size == word.size();
    at += size;
    if ((first || prefix_.empty()) && (!last || suffix_.empty()))
      return add(vocabulary.find(character), character, pending, s);
    s.text.assign(first ? "" : prefix_).append(character).append(last ? suffix_ : "");
    add(vocabulary.find(s.text), s.text, pending, s);
  }

  std::string prefix_, suffix_;
  bool byte_level_, fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
  bool splits_at_marks_ = false;
  int32_t unk_ = -1;
  std::array<int32_t, 256> bytes_{};
  std::vector<int32_t> byte_pieces_;
  StringTable words_;  // by raw bytes, for ignore_merges
  MergeTable merges_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::vector<int32_t> byte_pieces(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids(256);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char piece[8];
    std::snprintf(piece, sizeof piece, "<0x%02X>", byte);
    ids[byte] = vocabulary.find(piece);
  }
  return ids;
}

std::string vocabulary_json(const Vocabulary& vocabulary) {
  std::string json = "{";
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.has(id)) continue;
    if (json.size() > 1) json += ',';
    json += quoted_json(vocabulary.text(id)) + ":" + std::to_string(id);
  }
  return json + "}";
}

size_t next_marked_word(std::string_view text, size_t begin) {
  size_t at = begin;
  while (text.substr(at).starts_with(blank_mark)) at += blank_mark.size();
  return std::min(text.find(blank_mark, at), text.size());
}

bool marks_only_begin_words(const Vocabulary& vocabulary) {
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.has(id) && next_marked_word(vocabulary.text(id), 0) < vocabulary.text(id).size())
      return false;
  return true;
}

std::unique_ptr<Model> make_bpe(const Definition& definition, bool byte_level) {
  return std::make_unique<Bpe>(definition, byte_level);
}

}  // namespace stretto::nn::tokenizers
