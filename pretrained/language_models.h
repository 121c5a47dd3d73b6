// Decoder-only models by the fields of their config.json; for pretrained/pretrained.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../nn/files/name_map.h"
#include "../nn/models/language_model.h"
#include "../nn/positions/rotary.h"
#include "files/json_reader.h"

namespace stretto::nn::pretrained {

using files::JsonReader;

/// What a config.json determines of a decoder-only model.
struct LanguageModelConfig {
  LanguageModel::Options options;  ///< Options of the model.
  NameMap names;                   ///< Names of its weights in the file.
  int64_t max_length = 0;          ///< Trained length; 0: not limited by the configuration.
};

/// Returns the model types of language_model_config(), as in the field "model_type".
std::vector<std::string> language_model_types();
/// Reads all fields that determine the model. Throws for a type that is not in
/// language_model_types() and for values that are not supported.
LanguageModelConfig language_model_config(const std::string& model_type, JsonReader& config);

/// Returns RoPE with these options. Lowers the model's max_length to theirs.
MakePositionalEncoding rope(LanguageModelConfig& model, const RotaryOptions& options);
/// Reads a size that is `absent` without its field, and `null` if the field is null.
int64_t size_or(JsonReader& config, const char* name, int64_t absent, std::optional<int64_t> null);
/// Reads a size that has two names, which must agree.
int64_t size_of_names(JsonReader& config, const char* name, const char* other, int64_t fallback,
                      int64_t largest = 1 << 24);
/// Returns the small number that norms add to the variance.
double read_eps(JsonReader& config, const char* name, double fallback);
/// Returns an activation by its name in transformers, "gelu_new".
Activation activation_of(const JsonReader& config, const std::string& name);
/// Declares the fields of all models that do not affect results.
void ignore_general_fields(JsonReader& config);

}  // namespace stretto::nn::pretrained
