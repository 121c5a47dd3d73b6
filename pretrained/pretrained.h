// Published models: a folder of Hugging Face's hub or a file, ready to use.
//
//     const nn::Pretrained p = nn::load_pretrained("SmolLM2-135M-Instruct.Q4_1.gguf");
//     p.chat({{"user", "What is gravity?"}}, [](const std::string& text) { std::cout << text; });
//     nn::LanguageModel& model = p.language_model();
//     const std::vector<int64_t> ids = p.tokenizer->encode("Gravity is");
//     nn::save_pretrained("smollm2", p);  // a folder that transformers opens
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../nn/files/name_map.h"
#include "../nn/models/bert.h"
#include "../nn/models/generation.h"
#include "../nn/models/language_model.h"
#include "../nn/models/sequence_to_sequence.h"
#include "chat/chat_template.h"
#include "files/gguf/gguf_writer.h"
#include "tokenizers/subword_tokenizer.h"

namespace stretto::nn {

/// Options of load_pretrained().
struct PretrainedOptions {
  DType dtype = f32;                 ///< Dtype of the parameters: f32, f64 or bf16.
  Device device = default_device();  ///< Device of the model.
};

/// The files of a published model that save_pretrained() writes again.
struct PretrainedFiles {
  std::string config = {};             ///< config.json; for a GGUF file, its metadata in this form.
  std::string generation_config = {};  ///< generation_config.json; empty: none.
  /// What config.json cannot express of a GGUF file; empty: nothing. Such a model is not saved.
  std::string obstacle = {};
};

/// A published model with everything that its folder says about its use.
struct Pretrained {
  /// Architecture, as in config.json: "llama", "gpt2", "bert", …; or "gwinndr-music-transformer".
  std::string model_type;
  std::unique_ptr<Module> model;  ///< The model, in evaluation mode.
  /// The tokenizer; none if the folder has no file of a tokenizer, and for Transformer-XL and the
  /// Music Transformer, whose vocabularies are not of subwords.
  std::optional<SubwordTokenizer> tokenizer = {};
  std::string chat_template = {};  ///< Jinja template of conversations; empty: none.
  /// Names of the weights in files of transformers, for save_weights(), save_lora() and
  /// load_lora().
  NameMap names = {};
  int64_t max_length = 0;  ///< Trained length; longer inputs may be an error. 0: without a limit.
  /// Options of generation: those of generation_config.json, and the tokens that end an answer.
  /// Without that file, and in a GGUF file, always the most probable token (temperature 0).
  /// max_new_tokens, stop_strings, suppress_tokens and bad_words_ids of one token are used, too;
  /// max_length is not. Other settings that change the tokens, such as num_beams above 1, are not
  /// supported: `sampling.constrain` then throws an Error that names them. The end tokens of a GGUF
  /// file are those of eos_token_id, eot_token_id and eom_token_id, and tokens with a known name
  /// such as `<|im_end|>`.
  GenerationOptions generation = {};
  PretrainedFiles files = {};  ///< For save_pretrained().

  /// Returns the answer of a language model to a conversation, without special tokens and without
  /// the stop string that ended it. `on_text` receives it in pieces while it grows. `options` are by
  /// default those of the model, `generation`. Throws Error as parsed_template() and generate() do.
  std::string chat(const std::vector<ChatMessage>& messages,
                   const std::function<void(const std::string& text)>& on_text = {},
                   const std::optional<GenerationOptions>& options = {}) const;
  /// Parses chat_template, with the special tokens of the tokenizer. Throws Error if there is no
  /// template or no tokenizer.
  ChatTemplate parsed_template() const;
  /// Returns the model. Throws Error, with model_type, if it has another class.
  LanguageModel& language_model() const;
  /// Returns the model. Throws Error, with model_type, if it has another class.
  SequenceToSequence& sequence_to_sequence() const;
  /// Returns the model. Throws Error, with model_type, if it has another class.
  Bert& bert() const;
};

/// Loads a published model: a folder with config.json, weights (open_weights()) and the files of
/// the tokenizer, as downloaded from Hugging Face's hub; or a GGUF file of the architectures
/// "llama", "qwen2" and "qwen3", or a folder with one, in which everything is inside; or the state
/// dict (.pickle) of gwinndr's Music Transformer with relative attention, or a folder with one,
/// which is recognized by its tensors.
///
/// Supported are decoder-only models ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3",
/// "qwen3_moe", "phi3", "smollm3", "gemma2", "gemma3_text", "olmo2", "olmo3", "granite", "gpt_oss",
/// "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "deepseek_v2", "deepseek_v3",
/// "inkling_text", "inkling2_text", "gpt2", "gpt_neox", "gptj", "bloom", "transfo-xl") and the Music
/// Transformer as LanguageModel, "t5" as SequenceToSequence, and "bert", "roberta", "xlm-roberta",
/// "camembert", "mpnet", "modernbert" and "deberta-v2" as Bert. Every field of config.json is used,
/// or known to have no effect on results, or the error names it. Nothing of the folder is executed.
/// Weights are converted to the dtype one by one while they are read. If a tokenizer has more tokens
/// than the model's embedding, as in some published folders, the model raises an error for a text
/// that uses one of these tokens.
Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options = {});

/// Returns a new language model of the architecture that `config`, the text of a config.json,
/// describes. Its weights are normal with the standard deviation "initializer_range" (default 0.02).
/// It has no tokenizer, chat template or generation options; set them in the result before
/// save_pretrained(). Throws Error "[initialize_pretrained] config: …" as load_pretrained() does, and
/// for a model that is not decoder-only.
Pretrained initialize_pretrained(const std::string& config, const PretrainedOptions& options = {});

/// Saves a model as a folder that load_pretrained() and transformers open: config.json,
/// model.safetensors (in the dtype of the model), the files of the tokenizer, chat_template.jinja
/// and generation_config.json. The weights, the tokenizer, the template and the options of
/// generation are those of `pretrained`; other fields of the files are as they were read. Weights
/// that loading drops, such as the heads of BERT, are not saved. The metadata and the tokenizer of
/// a GGUF file are written in the form of transformers.
///
/// In an existing folder, files of the same names are replaced, and others remain; a file of
/// another tokenizer that would be read with the model is an error. Throws Error, and leaves the
/// files in `folder` as they were, if the model has adapters (merge_lora(), save_lora()), if
/// config.json cannot express a GGUF file, or if writing fails. One call at a time may save to a
/// folder. The written files are moved to `folder` at the end, config.json as the last. If a move
/// fails or the process is killed meanwhile, `folder` has files of both models and no config.json:
/// save again. To be sure of the old model, save to another folder.
void save_pretrained(const std::string& folder, const Pretrained& pretrained);

/// Saves a model of the types "llama", "mistral", "qwen2" and "qwen3" as a GGUF file, which
/// load_pretrained() and llama.cpp open: weights, tokenizer, chat template. Matrices have the type
/// `type`, other tensors f32. Replaces the file atomically. Throws Error "[save_gguf] PATH: …" for
/// other models, adapters, and what GGUF or this writer cannot express: a tokenizer that is no
/// byte-level BPE of a known family, RoPE with other scaling than "linear".
void save_gguf(const std::string& path, const Pretrained& pretrained,
               GgufType type = GgufType::f16);

/// Returns the names of all files that save_pretrained() may write.
std::vector<std::string> pretrained_files();

/// Name of the subfolder in which save_pretrained() writes all files before it moves them. A killed
/// process leaves it, and the next save_pretrained() removes it.
inline constexpr const char* partial_folder = ".stretto-partial";

/// Returns the model types that load_pretrained() supports in config.json.
std::vector<std::string> pretrained_model_types();

}  // namespace stretto::nn
