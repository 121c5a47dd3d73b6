// The options of the programs that load a published model.
#pragma once

#include <string>

#include "pretrained/pretrained.h"

namespace CLI {
class App;
}

namespace stretto::examples {

inline constexpr const char* model_help =
    "Folder of a published model (config.json, weights, tokenizer), or a GGUF file";

/// A published model and how it is loaded.
struct ModelOptions {
  std::string path, adapter, device = "cpu", dtype = "f32";
  int64_t threads = 0;  // 0: all cores
};

/// Declares the positional MODEL and --device, --dtype, --threads.
void declare_model(CLI::App& app, ModelOptions& options);

/// Declares --adapter, too.
void declare_language_model(CLI::App& app, ModelOptions& options);

/// Checks the options, sets the number of threads and returns how the model is loaded.
nn::PretrainedOptions pretrained_options(const ModelOptions& options);

/// Loads a language model with a tokenizer. Throws UsageError for any other model, and for one that
/// cannot be read.
nn::Pretrained load_language_model(const std::string& path, const nn::PretrainedOptions& options);

/// Loads the language model of the options, with its adapter.
nn::Pretrained load_language_model(const ModelOptions& options);

}  // namespace stretto::examples
