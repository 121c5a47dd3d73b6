// The components of published families, for files that do not name them.
#pragma once

#include <string>

#include "definition.h"

namespace stretto::nn::tokenizers {

/// How byte-level BPE of a family splits words.
enum class Family { gpt2, llama3, qwen2, smollm, bloom };

/// Sets normalizer, pre-tokenizer, decoder and options of the model.
void set_byte_level_bpe(Definition& definition, Family family);

/// Sets the components of BERT.
void set_bert(Definition& definition, bool lower_case, bool chinese, const Json& strip_accents);

/// Sets the decoder of SentencePiece, and marks its control pieces as special tokens.
void set_sentencepiece(Definition& definition);

/// Sets the tokens around a text; empty names add nothing. Throws Error for an unknown token.
void set_template(Definition& definition, const std::string& before, const std::string& after);

/// Adds a token; does nothing if it is there.
void add_token(Definition& definition, const AddedToken& token);

/// Files of a directory that add tokens; null if there is no such file.
struct TokenFiles {
  const Json& config;       ///< tokenizer_config.json.
  const Json& special_map;  ///< special_tokens_map.json, if transformers reads it.
  const Json& added;        ///< added_tokens.json, if transformers reads it.
};

/// Adds the tokens of files as transformers does: those with ids, those with roles, those of lists.
/// Tokens that are not in the vocabulary get the next ids if `adds_unknown`, else they are left out.
/// Throws Error for malformed tokens and for ids that contradict the definition.
void add_tokens(Definition& definition, const TokenFiles& files, const std::string& path,
                bool adds_unknown);

/// Sets what the class in tokenizer_config.json changes in a tokenizer.json: do_lower_case,
/// strip_accents, tokenize_chinese_chars, add_prefix_space. Throws Error for an option that
/// contradicts other components.
void set_options(Definition& definition, const Json& config);

/// Returns the text of a token, which is a string or an object with its content; empty for others.
std::string token_text(const Json& json);

/// Returns a truth value; `fallback` if the value is none.
bool is_true(const Json& json, bool fallback);

/// Reads a SentencePiece model. Throws Error "[tokenizer] path: …".
Definition read_sentencepiece(const std::string& path);

/// Reads a directory. Throws Error "[tokenizer] path: …".
Definition read_folder(const std::string& path);

}  // namespace stretto::nn::tokenizers
