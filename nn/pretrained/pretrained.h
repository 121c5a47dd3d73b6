// Published models: a folder of Hugging Face's hub or a file, ready to use.
//
//     const nn::Pretrained pretrained = nn::load_pretrained("SmolLM2-135M-Instruct");
//     nn::LanguageModel& model = pretrained.language_model();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../models/bert.h"
#include "../models/generation.h"
#include "../models/language_model.h"
#include "../models/sequence_to_sequence.h"

namespace stretto::nn {

/// Options of load_pretrained().
struct PretrainedOptions {
  DType dtype = f32;                 ///< Dtype of the parameters: f32, f64 or bf16.
  Device device = default_device();  ///< Device of the model.
};

/// A published model with everything that its folder says about its use.
struct Pretrained {
  std::string model_type;         ///< Architecture, as in config.json: "llama", "gpt2", "bert", …
  std::unique_ptr<Module> model;  ///< The model, in evaluation mode.
  int64_t max_length = 0;  ///< Trained length; longer inputs may be an error. 0: without a limit.
  /// Options of generation: those of generation_config.json, and the token that ends an answer.
  GenerationOptions generation = {};
  std::vector<int64_t> end_tokens = {};  ///< All tokens that end an answer; may be empty.

  /// Returns the model. Throws Error, with model_type, if it has another class.
  LanguageModel& language_model() const;
  /// Returns the model. Throws Error, with model_type, if it has another class.
  SequenceToSequence& sequence_to_sequence() const;
  /// Returns the model. Throws Error, with model_type, if it has another class.
  Bert& bert() const;
};

/// Loads a published model from a folder with config.json and weights, as downloaded from Hugging
/// Face's hub.
///
/// Supported are decoder-only models ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gpt2",
/// "gpt_neox", "gptj", "bloom") as LanguageModel, "t5" as SequenceToSequence, and "bert" as Bert.
/// Every field of config.json is used, or known to have no effect on results, or the error names it.
/// Nothing of the folder is executed.
Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options = {});

/// Returns the model types that load_pretrained() supports.
std::vector<std::string> pretrained_model_types();

}  // namespace stretto::nn
