// What a tokenizer's file defines, before it is compiled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../../files/json_reader.h"
#include "../text/op.h"

namespace stretto::nn::tokenizers {

using files::Json;
using files::json_text;
using files::JsonReader;
using files::parse_json;
using files::quoted_json;

/// A token that is found in the text before the model runs.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  ///< Only if no character of a word is next to it.
  bool lstrip = false;       ///< Takes the white space before it.
  bool rstrip = false;       ///< Takes the white space behind it.
  bool normalized = false;   ///< Is found in the normalized text instead of the text.
  bool special = false;      ///< decode() can skip it.
};

/// A token of the model's vocabulary.
struct Token {
  std::string text;
  int32_t id = -1;
  double score = 0;  ///< Of Unigram and of SentencePiece's BPE.
};

/// The types of pieces of a SentencePiece model, with the numbers that its files and GGUF use.
enum class PieceType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

/// The part of a SentencePiece file that tokenizer.json cannot express exactly.
struct SentencePiece {
  bool unigram = false;                  ///< Else BPE.
  std::vector<PieceType> types;          ///< By id.
  std::string charsmap;                  ///< Compiled normalization rules; may be empty.
  bool add_dummy_prefix = true;          ///< A blank in front of the text.
  bool remove_extra_whitespaces = true;  ///< Blanks at the ends, and all but one inside.
  bool whitespace_is_suffix = false;     ///< A blank belongs to the word in front of it.
  bool prefix_at_start_only = false;     ///< No such blank behind a special token.
  bool byte_fallback = false;            ///< Unknown characters become pieces of their bytes.
};

/// Names of tokens with a role; empty if there is none.
struct SpecialNames {
  std::string bos, eos, pad, unk;
};

/// A tokenizer as the components of a tokenizer.json, whatever file it comes from.
struct Definition {
  std::string name;  ///< The path, for errors.
  std::vector<AddedToken> added;
  Json normalizer, pre_tokenizer, post_processor, decoder;  ///< Null if there is none.
  Json model;                                               ///< Without vocabulary and merges.
  std::vector<Token> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  std::optional<SentencePiece> sentencepiece;  ///< Then `model` and `normalizer` are null.
  SpecialNames special;
  std::map<std::string, std::string> files;  ///< Of a directory: its files, by name.
};

/// Returns the definition in a tokenizer.json. Throws Error "[tokenizer] path: …".
Definition read_tokenizer_json(const std::string& path);

/// Returns a whole file of at most 2 GB. Throws Error "[tokenizer] path: …".
std::string read_text_file(const std::string& path);

/// Adds tokens and merges to a definition that has the layout of GPT-2: vocab.json (encoder.json)
/// and merges.txt (vocab.bpe).
void read_bpe_files(const std::string& vocabulary, const std::string& merges, Definition& to);

/// Files of a directory that belong to its tokenizer.
inline constexpr const char* directory_files[] = {"tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "encoder.json",
                                                  "vocab.bpe",
                                                  "vocab.txt",
                                                  "tokenizer.model",
                                                  "spiece.model",
                                                  "spm.model"};

/// The largest id + 1 that is accepted: 32 times the largest published vocabulary.
inline constexpr int64_t max_ids = int64_t(1) << 23;

/// The longest token that is accepted, in bytes.
inline constexpr size_t max_token_bytes = 1 << 16;

}  // namespace stretto::nn::tokenizers
