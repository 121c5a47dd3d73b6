// Decoder-only models by the metadata of a GGUF file; for nn/pretrained/pretrained.cpp.
#pragma once

#include "../files/gguf/gguf.h"
#include "../tokenizers/subword_tokenizer.h"
#include "language_models.h"

namespace stretto::nn::pretrained {

/// What the metadata of a GGUF file determine of a model.
struct GgufModelConfig {
  std::string model_type;      ///< As in config.json: "llama", "qwen2", "qwen3".
  LanguageModelConfig config;  ///< Options, and the names of transformers.
  NameMap names;               ///< Names of the weights in this file.
};

/// Reads all keys that determine the model. Throws Error for an architecture or a key that is not
/// supported.
GgufModelConfig gguf_model_config(const GgufFile& file);

/// Returns the vocabulary of a file.
GgufVocabulary gguf_vocabulary(const GgufFile& file);

}  // namespace stretto::nn::pretrained
