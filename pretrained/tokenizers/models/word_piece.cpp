// WordPiece (Schuster and Nakajima 2012) as in BERT: the longest token first.
#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/text/trie.h"

namespace stretto::nn::tokenizers {
namespace {

class WordPiece : public Model {
 public:
  explicit WordPiece(const Definition& d) : Model({d.vocabulary, d.name}) {
    JsonReader fields(op, d.name + ": model WordPiece", d.model);
    fields.ignore({"type", "vocab"});
    const std::string prefix = fields.text("continuing_subword_prefix", "##");
    const std::string unk = fields.text("unk_token", "[UNK]");
    longest_word_ = fields.integer("max_input_chars_per_word", 100, 0, INT32_MAX);
    fields.finish();
    if (!d.merges.empty()) fields.refuse("WordPiece has no merges");
    unk_ = vocabulary.find(unk);
    if (unk_ < 0) fields.refuse("unk_token " + in_quotes(unk) + " is not in the vocabulary");
    std::vector<TrieKey> first, further;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!vocabulary.has(id)) continue;
      const std::string_view text = vocabulary.text(id);
      first.push_back({text, id});
      if (text.starts_with(prefix)) further.push_back({text.substr(prefix.size()), id});
    }
    first_ = Trie(std::move(first));
    further_ = Trie(std::move(further));
  }

  void encode(std::string_view word, std::vector<int64_t>& ids, ModelScratch&) const override {
    int64_t characters = 0;
    for (size_t at = 0; at < word.size(); at += utf8_size(word[at])) ++characters;
    if (characters > longest_word_) return ids.push_back(unk_);
    const size_t before = ids.size();
    for (size_t at = 0; at < word.size();) {
      int32_t id = -1;
      size_t end = at;
      (at == 0 ? first_ : further_).each_prefix(word.substr(at), [&](size_t size, int32_t found) {
        if (size == 0) return;
        id = found;
        end = at + size;
      });
      if (id < 0) {
        ids.resize(before);
        return ids.push_back(unk_);
      }
      ids.push_back(id);
      at = end;
    }
  }

  void append_tables(std::string& json) const override {
    json += ",\"vocab\":" + vocabulary_json(vocabulary);
  }

 private:
  int64_t longest_word_;
  int32_t unk_;
  Trie first_, further_;
};

}  // namespace

std::unique_ptr<Model> make_word_piece(const Definition& definition) {
  return std::make_unique<WordPiece>(definition);
}

}  // namespace stretto::nn::tokenizers
