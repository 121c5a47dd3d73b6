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

/// Reads a SentencePiece model. Throws Error "[tokenizer] path: …".
Definition read_sentencepiece(const std::string& path);

/// Reads a directory. Throws Error "[tokenizer] path: …".
Definition read_folder(const std::string& path);

}  // namespace stretto::nn::tokenizers
