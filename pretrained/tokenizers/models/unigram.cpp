// Unigram (Kudo 2018): the segmentation with the highest sum of scores, by Viterbi's algorithm.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/models/model.h"
#include "pretrained/tokenizers/text/trie.h"

namespace stretto::nn::tokenizers {
namespace {

constexpr double unknown_penalty = 10;  // of sentencepiece and tokenizers

class Unigram : public Model {
 public:
  explicit Unigram(const Definition& d) : Model({d.vocabulary, d.name}) {
    JsonReader fields(op, d.name + ": model Unigram", d.model);
    fields.ignore({"type", "vocab"});
    byte_fallback_ = fields.flag("byte_fallback", false);
    unk_ = int32_t(fields.integer("unk_id", -1, 0, vocabulary.size() - 1));
    fields.finish();
    if (!d.merges.empty()) fields.refuse("Unigram has no merges");
    if (vocabulary.size() == 0) fields.refuse("the vocabulary is empty");
    if (byte_fallback_) bytes_ = byte_pieces(vocabulary);
    double lowest = std::numeric_limits<double>::infinity();
    std::vector<TrieKey> keys;
    for (const Token& token : d.vocabulary) {
      scores_.push_back(token.score);
      lowest = std::min(lowest, token.score);
      if (!token.text.empty()) keys.push_back({token.text, token.id});
    }
    unknown_score_ = lowest - unknown_penalty;
    trie_ = Trie(std::move(keys));
  }

  void encode(std::string_view word, std::vector<int64_t>& ids, ModelScratch& s) const override {
    find_path(word, s);
    s.pieces.clear();
    for (size_t end = word.size(); end > 0;) {
      const ModelScratch::Step& step = s.path[end];
      const auto begin = size_t(step.begin);
      // Neighboring unknown characters are one piece.
      if (step.id == unk_ && !s.pieces.empty() && s.pieces.back().first == unk_) {
        std::string_view& piece = s.pieces.back().second;
        piece = word.substr(begin, end - begin + piece.size());
      } else {
        s.pieces.emplace_back(step.id, word.substr(begin, end - begin));
      }
      end = begin;
    }
    for (auto piece = s.pieces.rbegin(); piece != s.pieces.rend(); ++piece) {
      if (piece->first != unk_) {
        ids.push_back(piece->first);
      } else {
        add_unknown(piece->second, ids);
      }
    }
  }

  void append_tables(std::string& json) const override {
    json += ",\"vocab\":[";
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      Json score;
      score.kind = Json::Kind::number;
      score.number = scores_[size_t(id)];
      json +=
          (id > 0 ? ",[" : "[") + quoted_json(vocabulary.text(id)) + "," + json_text(score) + "]";
    }
    json += ']';
  }

 private:
  void find_path(std::string_view word, ModelScratch& s) const {
    s.path.assign(word.size() + 1, {});
    for (size_t at = 0; at < word.size();) {
      const double so_far = s.path[at].score;
      const size_t size = utf8_size(word[at]);
      bool known = false;
      const auto offer = [&](size_t length, int32_t id, double score) {
        ModelScratch::Step& step = s.path[at + length];
        if (step.begin < 0 || score + so_far > step.score) step = {score + so_far, id, int32_t(at)};
      };
      trie_.each_prefix(word.substr(at), [&](size_t length, int32_t id) {
        offer(length, id, scores_[size_t(id)]);
        known |= length == size;
      });
      if (!known) {
        check(unk_ >= 0, op,
              "a character is not in the vocabulary of Unigram, which has no unk_id");
        offer(size, unk_, unknown_score_);
      }
      at += size;
    }
  }

  void add_unknown(std::string_view piece, std::vector<int64_t>& ids) const {
    const int32_t id = vocabulary.find(piece);
    if (id >= 0) return ids.push_back(id);
    if (byte_fallback_ &&
        std::all_of(piece.begin(), piece.end(), [&](char c) { return bytes_[uint8_t(c)] >= 0; })) {
      for (const char c : piece) ids.push_back(bytes_[uint8_t(c)]);
    } else {
      ids.push_back(unk_);
    }
  }

  bool byte_fallback_ = false;
  int32_t unk_ = -1;
  double unknown_score_ = 0;
  std::vector<int32_t> bytes_;
  std::vector<double> scores_;
  Trie trie_;
};

}  // namespace

std::unique_ptr<Model> make_unigram(const Definition& definition) {
  return std::make_unique<Unigram>(definition);
}

std::unique_ptr<Model> make_model(const Definition& d, bool byte_level) {
  if (d.sentencepiece) return make_sentencepiece(d);
  const Json& type = d.model["type"];
  // Old files of BPE and WordPiece name no type.
  const std::string name = type.is_string() ? type.text : d.merges.empty() ? "" : "BPE";
  if (name == "BPE") return make_bpe(d, byte_level);
  check(!byte_level, op, d.name, ": ByteLevel with a model other than BPE is not supported");
  if (name == "WordPiece") return make_word_piece(d);
  if (name == "Unigram") return make_unigram(d);
  fail(op, d.name, ": the model ", type.is_null() ? "without a type" : json_text(type),
       " is not supported; supported are BPE, Unigram and WordPiece");
}

}  // namespace stretto::nn::tokenizers
