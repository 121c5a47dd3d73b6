// Decoder-only models by the metadata of a GGUF file; for pretrained/pretrained.cpp.
#pragma once

#include "../nn/positions/rotary.h"
#include "files/gguf/gguf.h"
#include "language_models.h"
#include "pretrained.h"
#include "tokenizers/subword_tokenizer.h"

namespace stretto::nn::pretrained {

/// What the metadata of a GGUF file determine of a model.
struct GgufModelConfig {
  std::string model_type;      ///< As in config.json: "llama", "qwen2", "qwen3".
  LanguageModelConfig config;  ///< Options, and the names of transformers.
  NameMap names;               ///< Names of the weights in this file.
  RotaryOptions rotary;        ///< The rotation of queries and keys.
};

/// Reads all keys that determine the model. Throws Error for an architecture or a key that is not
/// supported.
GgufModelConfig gguf_model_config(const GgufFile& file);

/// Returns the files that save_pretrained() writes.
PretrainedFiles gguf_files(const GgufFile& file, const GgufModelConfig& model,
                           const SubwordTokenizer& tokenizer);

/// Returns the vocabulary of a file.
GgufVocabulary gguf_vocabulary(const GgufFile& file);

/// Returns the tokens that end an answer: by the keys eos_token_id, eot_token_id and eom_token_id,
/// and by known names of such tokens.
std::vector<int64_t> gguf_end_tokens(const GgufFile& file, const GgufVocabulary& vocabulary);

}  // namespace stretto::nn::pretrained
