// The models of SentencePiece (Kudo and Richardson 2018), with the same results as its library.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/one_line.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/models/merge_table.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/text/trie.h"

namespace stretto::nn::tokenizers {
namespace {

// What BPE and Unigram share: types of pieces and unknown pieces.
class SentencePieceModel : public Model {
 public:
  explicit SentencePieceModel(const Definition& d)
      : Model({d.vocabulary, d.name}), types_(d.sentencepiece->types) {
    check(types_.size() == size_t(vocabulary.size()) && d.vocabulary.size() == types_.size(), op,
          d.name, ": ", types_.size(), " types for ", d.vocabulary.size(), " pieces");
    for (size_t id = 0; id < types_.size(); ++id) {
      scores_.push_back(float(d.vocabulary[id].score));
      if (types_[id] == PieceType::unknown) unk_ = int32_t(id);
    }
    check(unk_ >= 0, op, d.name, ": has no piece for unknown characters");
    if (!d.sentencepiece->byte_fallback) return;
    bytes_ = byte_pieces(vocabulary);
    check(std::find(bytes_.begin(), bytes_.end(), -1) == bytes_.end(), op, d.name,
          ": byte fallback needs all pieces <0x00> to <0xFF>");
  }

  void append_tables(std::string&) const override {
    fail(op, "SentencePiece's model cannot be written as tokenizer.json");
  }

 protected:
  bool is_piece(int32_t id) const {
    const PieceType type = types_[size_t(id)];
    return type == PieceType::normal || type == PieceType::user_defined ||
           type == PieceType::unused;
  }

  // Appends a piece. Neighboring unknown ones are one id, or the ids of their bytes.
  void add(int32_t id, std::string_view piece, bool& after_unknown,
           std::vector<int64_t>& ids) const {
    const bool unknown = id == unk_;
    if (!unknown) {
      ids.push_back(id);
    } else if (!bytes_.empty()) {
      for (const char c : piece) ids.push_back(bytes_[uint8_t(c)]);
    } else if (!after_unknown) {
      ids.push_back(unk_);
    }
    after_unknown = unknown;
  }

  std::vector<PieceType> types_;
  std::vector<float> scores_;  // by id
  std::vector<int32_t> bytes_;
  int32_t unk_ = -1;
};

class SentencePieceBpe : public SentencePieceModel {
 public:
  explicit SentencePieceBpe(const Definition& d) : SentencePieceModel(d) {
    std::vector<TrieKey> user_defined;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (!is_piece(id)) continue;
      if (types_[size_t(id)] == PieceType::user_defined)
        user_defined.push_back({vocabulary.text(id), id});
      add_symbols(vocabulary.text(id));
    }
    user_defined_ = Trie(std::move(user_defined));
    add_merges();
    splits_at_marks_ = vocabulary.find(blank_mark) >= 0 && marks_only_begin_words(vocabulary);
  }

  void encode(std::string_view word, std::vector<int64_t>& ids, ModelScratch& s) const override {
    s.symbols.clear();
    for (size_t at = 0; at < word.size();) {
      size_t size = 0;
      user_defined_.each_prefix(word.substr(at), [&](size_t found, int32_t) { size = found; });
      const bool frozen = size > 0;
      if (!frozen) size = utf8_size(word[at]);
      s.symbols.push_back(symbol_of(word.substr(at, size), frozen));
      at += size;
    }
    merges_.apply(s);
    size_t at = 0;
    bool after_unknown = false;
    for (const int32_t symbol : s.symbols) {
      const size_t size = symbol_size(symbol, word, at);
      add_symbol(symbol, word.substr(at, size), after_unknown, ids);
      at += size;
    }
  }

  size_t end_of_part(std::string_view text, size_t begin) const override {
    return splits_at_marks_ ? next_marked_word(text, begin) : text.size();
  }

 private:
  // Symbols: an id of a piece; vocabulary.size() + i for a character that is only a part of pieces;
  // the bits below for a user-defined piece, which is never merged, and for other characters.
  static constexpr int32_t frozen_bit = 1 << 28, unknown_symbol = 1 << 29;

  int32_t find_symbol(std::string_view text) const {
    const int32_t id = vocabulary.find(text);
    if (id >= 0 && is_piece(id)) return id;
    const int32_t part = characters_.find(text);
    return part < 0 ? -1 : vocabulary.size() + part;
  }

  int32_t symbol_of(std::string_view text, bool frozen) const {
    const int32_t symbol = find_symbol(text);
    if (symbol < 0) return unknown_symbol;
    return frozen ? symbol | frozen_bit : symbol;
  }

  size_t symbol_size(int32_t symbol, std::string_view word, size_t at) const {
    if (symbol == unknown_symbol) return utf8_size(word[at]);
    symbol &= ~frozen_bit;
    return symbol < vocabulary.size() ? vocabulary.text(symbol).size() : utf8_size(word[at]);
  }

  void add_symbol(int32_t symbol, std::string_view text, bool& after_unknown,
                  std::vector<int64_t>& ids) const {
    symbol &= ~frozen_bit;
    if (symbol >= vocabulary.size()) {
      const int32_t id = vocabulary.find(text);  // a control piece of one character
      return add(id < 0 ? unk_ : id, text, after_unknown, ids);
    }
    if (types_[size_t(symbol)] != PieceType::unused) return add(symbol, text, after_unknown, ids);
    // An unused piece is cut into the pieces that it was merged from.
    const auto parts = parts_of_unused_.find(symbol);
    if (parts == parts_of_unused_.end()) return add(symbol, text, after_unknown, ids);
    const size_t size = symbol_size(parts->second.first, text, 0);
    add_symbol(parts->second.first, text.substr(0, size), after_unknown, ids);
    add_symbol(parts->second.second, text.substr(size), after_unknown, ids);
  }

  void add_symbols(std::string_view piece) {
    for (size_t at = 0; at < piece.size(); at += utf8_size(piece[at])) {
      const std::string_view character = piece.substr(at, utf8_size(piece[at]));
      if (find_symbol(character) >= 0) continue;
      characters_.insert(character, characters_count_++);
    }
  }

  // Every way to cut a piece into two symbols is a merge, ranked by the piece's score.
  void add_merges() {
    std::vector<float> scores;
    for (int32_t id = 0; id < vocabulary.size(); ++id)
      if (is_piece(id)) scores.push_back(scores_[size_t(id)]);
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    struct Cut {
      int32_t left, right, piece;
    };
    std::vector<Cut> cuts;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view piece = vocabulary.text(id);
      if (!is_piece(id)) continue;
      for (size_t at = utf8_size(piece[0]); at < piece.size(); at += utf8_size(piece[at])) {
        const int32_t left = find_symbol(piece.substr(0, at));
        const int32_t right = left < 0 ? -1 : find_symbol(piece.substr(at));
        if (right >= 0) cuts.push_back({left, right, id});
      }
    }
    merges_ = MergeTable(cuts.size());
    for (const Cut& cut : cuts) {
      const auto rank = std::lower_bound(scores.begin(), scores.end(), scores_[size_t(cut.piece)],
                                         std::greater<>());
      merges_.set(cut.left, cut.right, {uint32_t(rank - scores.begin()), cut.piece});
      if (types_[size_t(cut.piece)] == PieceType::unused)
        parts_of_unused_[cut.piece] = {cut.left, cut.right};
    }
  }

  StringTable characters_;
  int32_t characters_count_ = 0;
  Trie user_defined_;
  MergeTable merges_;
  std::unordered_map<int32_t, std::pair<int32_t, int32_t>> parts_of_unused_;
  bool splits_at_marks_ = false;
};

class SentencePieceUnigram : public SentencePieceModel {
 public:
  explicit SentencePieceUnigram(const Definition& d) : SentencePieceModel(d) {
    float lowest = std::numeric_limits<float>::max();
    std::vector<TrieKey> keys;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (types_[size_t(id)] == PieceType::normal) lowest = std::min(lowest, scores_[size_t(id)]);
      if (is_piece(id)) keys.push_back({vocabulary.text(id), id});
    }
    unknown_score_ = lowest - 10;
    trie_ = Trie(std::move(keys));
  }

  // Sums in f32, as sentencepiece 0.2.3: ties are broken by rounding, which must be the same.
  void encode(std::string_view word, std::vector<int64_t>& ids, ModelScratch& s) const override {
    s.path.assign(word.size() + 1, {});
    size_t frontier = 0;  // the last position with a step
    for (size_t at = 0; at < word.size();) {
      const float so_far = rebased(at, frontier, s);
      const size_t size = utf8_size(word[at]);
      bool known = false;
      const auto offer = [&](size_t length, int32_t id, float score) {
        frontier = std::max(frontier, at + length);
        ModelScratch::Step& step = s.path[at + length];
        if (step.begin < 0 || score > float(step.score)) step = {double(score), id, int32_t(at)};
      };
      trie_.each_prefix(word.substr(at), [&](size_t length, int32_t id) {
        const PieceType type = types_[size_t(id)];
        if (type == PieceType::unused) return;
        const float score =
            type == PieceType::user_defined ? user_defined_score(length) : scores_[size_t(id)];
        offer(length, id, score + so_far);
        known |= length == size;
      });
      if (!known) offer(size, unk_, unknown_score_ + so_far);
      at += size;
    }
    s.pieces.clear();
    for (size_t end = word.size(); end > 0; end = size_t(s.path[end].begin)) {
      const auto begin = size_t(s.path[end].begin);
      s.pieces.emplace_back(s.path[end].id, word.substr(begin, end - begin));
    }
    bool after_unknown = false;
    for (auto piece = s.pieces.rbegin(); piece != s.pieces.rend(); ++piece)
      add(piece->first, piece->second, after_unknown, ids);
  }

 private:
  // Returns the score of the path to `at`. If it is large, it is subtracted from all open paths.
  static float rebased(size_t at, size_t frontier, ModelScratch& s) {
    constexpr float largest = 100000;
    const auto score = float(s.path[at].score);
    if (score >= -largest && score <= largest) return score;
    for (size_t i = at; i <= frontier; ++i)
      if (i == at || s.path[i].begin >= 0) s.path[i].score = double(float(s.path[i].score) - score);
    return 0;
  }

  // Better than every other path: the scores of pieces are at most 0.
  static float user_defined_score(size_t bytes) { return float(0.1 * double(bytes - 1)); }

  float unknown_score_ = 0;
  Trie trie_;
};

}  // namespace

std::unique_ptr<Model> make_sentencepiece(const Definition& d) {
  for (const Token& token : d.vocabulary)
    check(!token.text.empty() && find_invalid_utf8(token.text).at == token.text.size(), op, d.name,
          ": the piece ", token.id, " is not UTF-8 of at least one character");
  if (d.sentencepiece->unigram) return std::make_unique<SentencePieceUnigram>(d);
  return std::make_unique<SentencePieceBpe>(d);
}

}  // namespace stretto::nn::tokenizers
