// What the tests of config.json have in common.
#pragma once

#include <string>
#include <vector>

#include "pretrained/language_models.h"
#include "tests/support/error_of.h"

namespace stretto::testing {

// The fields that llama and its descendants need.
inline std::string llama_fields(const std::string& more) {
  return R"({"vocab_size": 13, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4)" +
         (more.empty() ? "" : ", " + more) + "}";
}

inline nn::LanguageModel::Options options_of(const std::string& type, const std::string& fields) {
  nn::files::JsonReader c = nn::files::JsonReader::parse("load_pretrained", "config.json", fields);
  nn::LanguageModel::Options o = nn::pretrained::language_model_config(type, c).options;
  c.finish();
  return o;
}

// The windows of the layers.
inline std::vector<int64_t> windows(const std::string& type, const std::string& more) {
  const nn::LanguageModel::Options o = options_of(type, llama_fields(more));
  std::vector<int64_t> all;
  for (int64_t i = 0; i < o.n_layers; ++i) {
    nn::LayerOptions layer = o.layer;
    if (o.vary_layer) o.vary_layer(i, layer);
    all.push_back(layer.attention.window);
  }
  return all;
}

inline std::string error(const std::string& type, const std::string& more) {
  return error_of<Error>([&] { options_of(type, llama_fields(more)); });
}

}  // namespace stretto::testing
