// The normalizer of SentencePiece's library: rules, blanks and their mark U+2581.
#include "core/error.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/components/normalizer.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/text/charsmap.h"
#include "pretrained/tokenizers/text/trie.h"

namespace stretto::nn::tokenizers {
namespace {

class SentencePieceNormalizer : public Normalizer {
 public:
  explicit SentencePieceNormalizer(const Definition& d) : options_(*d.sentencepiece) {
    if (!options_.charsmap.empty()) map_ = Charsmap(options_.charsmap, d.name);
    std::vector<TrieKey> keys;
    for (size_t id = 0; id < options_.types.size() && id < d.vocabulary.size(); ++id)
      if (options_.types[id] == PieceType::user_defined)
        keys.push_back({d.vocabulary[id].text, int32_t(id)});
    user_defined_ = Trie(std::move(keys));
    options_.types = {};
    options_.charsmap = {};
  }

  void apply(std::string& text, size_t& first, MatchScratch& scratch) const override {
    std::string result;
    std::string_view in = text;
    const bool removes = options_.remove_extra_whitespaces;
    while (removes && !in.empty()) {
      const Charsmap::Match part = next(in);
      if (part.replacement != " ") break;
      in.remove_prefix(part.size);
    }
    if (in.empty()) {
      text.clear();
      return;
    }
    result.reserve(in.size() + in.size() / 4);
    const bool prefix = options_.add_dummy_prefix && (first > 0 || !options_.prefix_at_start_only);
    if (prefix && !options_.whitespace_is_suffix) result += blank_mark;
    bool after_blank = removes;
    while (!in.empty()) {
      const Charsmap::Match part = next(in);
      in.remove_prefix(part.size);
      scratch.check_growth(result.size());
      std::string_view piece = part.replacement;
      while (after_blank && piece.starts_with(' ')) piece.remove_prefix(1);
      if (!piece.empty()) {
        append_marked(result, piece);
        after_blank = piece.ends_with(' ');
      }
      if (!removes) after_blank = false;
    }
    while (removes && std::string_view(result).ends_with(blank_mark))
      result.resize(result.size() - blank_mark.size());
    if (prefix && options_.whitespace_is_suffix) result += blank_mark;
    text = std::move(result);
  }

 private:
  static void append_marked(std::string& to, std::string_view piece) {
    for (const char c : piece) {
      if (c == ' ') {
        to += blank_mark;
      } else {
        to += c;
      }
    }
  }

  // Returns the replacement of the start of `in`: a user-defined piece stays, else the longest
  // rule.
  Charsmap::Match next(std::string_view in) const {
    size_t size = 0;
    user_defined_.each_prefix(in, [&](size_t found, int32_t) { size = found; });
    if (size > 0) return {size, in.substr(0, size)};
    const Charsmap::Match rule = map_.longest(in);
    if (rule.size > 0) return rule;
    size = utf8_size(in[0]);
    return {size, in.substr(0, size)};
  }

  SentencePiece options_;
  Charsmap map_;
  Trie user_defined_;
};

}  // namespace

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(const Definition& definition) {
  return std::make_unique<SentencePieceNormalizer>(definition);
}

}  // namespace stretto::nn::tokenizers
