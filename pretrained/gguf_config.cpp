// config.json of a model in a GGUF file, for save_pretrained().
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/one_line.h"
#include "pretrained/gguf_model.h"

namespace stretto::nn::pretrained {
namespace {

using Json = nlohmann::ordered_json;

// Returns the parameters of LLaMA 3 that give the frequencies in a file, which stores their
// quotients in f32; null if none do. Published models differ in `factor` only.
Json llama3_scaling(const RotaryOptions& o) {
  const auto unscaled = [&](size_t i) { return std::pow(o.base, -2 * double(i) / double(o.dims)); };
  Llama3Scaling s{.dims = o.dims, .base = o.base};
  s.factor = std::round(unscaled(o.frequencies.size() - 1) / o.frequencies.back());
  const std::vector<double> frequencies = llama3_frequencies(s);
  for (size_t i = 0; i < frequencies.size(); ++i)
    if (std::abs(o.frequencies[i] / frequencies[i] - 1) > 1e-6) return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_frequency_factor},
          {"high_freq_factor", s.high_frequency_factor},
          {"original_max_position_embeddings", int64_t(s.length)}};
}

Json rope_scaling(const GgufFile& file, const GgufModelConfig& m) {
  const auto key = [&](const char* name) { return m.model_type + ".rope.scaling." + name; };
  const std::string type = file.get<std::string>(key("type"), "none");
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", m.rotary.scale}};
  if (type == "yarn")
    return {{"rope_type", "yarn"},
            {"factor", file.get<double>(key("factor"))},
            {"attention_factor", m.rotary.attention_factor},
            {"original_max_position_embeddings",
             file.get<int64_t>(key("original_context_length"), m.config.max_length)}};
  return m.rotary.frequencies.empty() ? Json() : llama3_scaling(m.rotary);
}

// Returns what the configuration classes of transformers cannot express; empty: nothing.
std::string obstacle(const GgufModelConfig& m, const Json& scaling) {
  const LayerOptions& layer = m.config.options.layer;
  const MultiHeadAttention::Options& a = layer.attention;
  const bool qwen2 = m.model_type == "qwen2", llama = m.model_type == "llama";
  if (a.d_key != a.d_value) return "attention.value_length differs from attention.key_length";
  if (m.rotary.dims != a.d_key) return "rope.dimension_count differs from attention.key_length";
  if (!m.rotary.frequencies.empty() && scaling.is_null())
    return "rope_freqs.weight has not the values of LLaMA 3";
  if (qwen2 ? a.bias || !*a.q_bias : a.bias != *a.q_bias)
    return "the biases of attention are not those of transformers";
  if (layer.feed_forward.bias && (!llama || a.window > 0)) return "feed-forward layers have a bias";
  if (llama && a.window > 0 && a.bias) return "a sliding window, and biases of attention";
  return "";
}

}  // namespace

PretrainedFiles gguf_files(const GgufFile& file, const GgufModelConfig& m,
                           const SubwordTokenizer& tokenizer) {
  const LanguageModel::Options& o = m.config.options;
  const MultiHeadAttention::Options& a = o.layer.attention;
  const Json scaling = rope_scaling(file, m);
  const bool windowed_llama = m.model_type == "llama" && a.window > 0;
  const std::string type = windowed_llama ? "mistral" : m.model_type;
  const char* prefix = type == "llama"     ? "Llama"
                       : type == "mistral" ? "Mistral"
                       : type == "qwen2"   ? "Qwen2"
                                           : "Qwen3";
  Json c{{"architectures", Json::array({str(prefix, "ForCausalLM")})},
         {"model_type", type},
         {"vocab_size", o.vocabulary},
         {"hidden_size", o.layer.d_model},
         {"intermediate_size", o.layer.feed_forward.d_hidden},
         {"num_hidden_layers", o.n_layers},
         {"num_attention_heads", a.n_heads},
         {"num_key_value_heads", a.n_kv_heads},
         {"head_dim", a.d_key},
         {"hidden_act", "silu"},
         {"rms_norm_eps", *o.layer.norm_eps},
         {"tie_word_embeddings", o.tied},
         {"rope_theta", m.rotary.base},
         {"rope_scaling", scaling}};
  if (m.config.max_length > 0) c["max_position_embeddings"] = m.config.max_length;
  if (type == "llama" || type == "qwen3") c["attention_bias"] = a.bias;
  if (type == "llama") c["mlp_bias"] = o.layer.feed_forward.bias;
  if (a.window > 0 || type == "mistral") c["sliding_window"] = a.window;
  if (a.window > 0 && type != "mistral") {
    c["use_sliding_window"] = true;
    c["max_window_layers"] = 0;
  }
  if (const auto id = tokenizer.bos()) c["bos_token_id"] = *id;
  if (const auto id = tokenizer.eos()) c["eos_token_id"] = *id;
  if (const auto id = tokenizer.pad()) c["pad_token_id"] = *id;
  return {.config = c.dump(2) + "\n", .obstacle = obstacle(m, scaling)};
}

}  // namespace stretto::nn::pretrained
