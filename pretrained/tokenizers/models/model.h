// The models that turn a word into tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../files/definition.h"
#include "vocabulary.h"

namespace stretto::nn::tokenizers {

/// Reusable memory of one call of encode().
struct ModelScratch {
  struct Candidate {
    uint64_t order;  // rank << 32 | position
    int32_t left, right;
  };
  struct Step {
    double score = 0;
    int32_t id = -1, begin = -1;
  };
  std::vector<int32_t> symbols, merged, next, previous;
  std::vector<uint32_t> ranks;
  std::vector<Candidate> heap;
  std::vector<Step> path;
  std::vector<std::pair<int32_t, std::string_view>> pieces;
  std::string text;
};

/// A model. Immutable, hence thread-safe.
class Model {
 public:
  explicit Model(Vocabulary words) : vocabulary(std::move(words)) {}
  virtual ~Model() = default;
  /// Appends the ids of a word, which is valid UTF-8.
  virtual void encode(std::string_view word, std::vector<int64_t>& ids,
                      ModelScratch& scratch) const = 0;
  /// Returns the end of a part of `text` that can be encoded independently of the rest.
  virtual size_t end_of_part(std::string_view text, size_t begin) const {
    (void)begin;
    return text.size();
  }
  /// Appends vocabulary and merges as members of the JSON object of a tokenizer.json's model.
  virtual void append_tables(std::string& json) const = 0;

  const Vocabulary vocabulary;
};

/// Returns the model of a definition. If `byte_level`, words are raw bytes, and tokens are in the
/// alphabet of byte_level.h. Throws Error "[tokenizer] name: …".
std::unique_ptr<Model> make_model(const Definition& definition, bool byte_level);

std::unique_ptr<Model> make_bpe(const Definition& definition, bool byte_level);
std::unique_ptr<Model> make_unigram(const Definition& definition);
std::unique_ptr<Model> make_word_piece(const Definition& definition);
/// Returns the model of a SentencePiece file.
std::unique_ptr<Model> make_sentencepiece(const Definition& definition);

/// Returns the ids of the pieces <0x00> … <0xFF>; −1 for a piece that the vocabulary lacks.
std::vector<int32_t> byte_pieces(const Vocabulary& vocabulary);

/// Returns the vocabulary as a JSON object.
std::string vocabulary_json(const Vocabulary& vocabulary);

/// The mark of a blank in SentencePiece: U+2581.
inline constexpr std::string_view blank_mark = "\xE2\x96\x81";

/// Returns the first position after `begin` of a blank mark behind another character; the size of
/// the text if there is none.
size_t next_marked_word(std::string_view text, size_t begin);

/// True if no token of the vocabulary has a blank mark behind another character.
bool marks_only_begin_words(const Vocabulary& vocabulary);

}  // namespace stretto::nn::tokenizers
