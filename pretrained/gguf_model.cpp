#include "pretrained/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/one_line.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"

namespace stretto::nn::pretrained {
namespace {

const WeightsFile::Entry* entry_of(const GgufFile& file, const std::string& name) {
  for (const WeightsFile::Entry& e : file.entries())
    if (e.name == name) return &e;
  return nullptr;
}

// The keys of the architecture as an object of JSON: "llama.block_count" becomes "block_count".
JsonReader keys_of(const GgufFile& file, const std::string& architecture) {
  nlohmann::json object = nlohmann::json::object();
  const std::string prefix = architecture + ".";
  for (const auto& [key, value] : file.values()) {
    if (!key.starts_with(prefix)) continue;
    const std::string name = key.substr(prefix.size());
    if (const auto* flag = std::get_if<bool>(&value.value))
      object[name] = *flag;
    else if (const auto* integer = std::get_if<int64_t>(&value.value))
      object[name] = *integer;
    else if (const auto* number = std::get_if<double>(&value.value))
      object[name] = *number;
    else if (const auto* text = std::get_if<std::string>(&value.value))
      object[name] = *text;
    else
      object[name] = "array";  // not supported: finish() names it
  }
  return JsonReader::parse("load_pretrained", file.path(),
                           object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// Reads the rotation. LLaMA 3 stores one factor per pair in the tensor "rope_freqs.weight".
RotaryOptions rotary_options(const GgufFile& file, JsonReader& c, int64_t d, int64_t length) {
  RotaryOptions o{.dims = c.integer("rope.dimension_count", d),
                  .base = c.number("rope.freq_base", 10000)};
  const std::string type = c.text("rope.scaling.type", "none");
  if (type == "linear") {
    o.scale = c.number("rope.scaling.factor");
  } else if (type == "yarn") {
    const double factor = c.number("rope.scaling.factor");
    o.frequencies = yarn_frequencies(
        {.dims = o.dims,
         .base = o.base,
         .factor = factor,
         .length = double(c.integer("rope.scaling.original_context_length", length))});
    o.attention_factor = c.number("rope.scaling.attn_factor", 1) * yarn_attention_factor(factor);
  } else if (type != "none") {
    c.refuse(str("rope.scaling.type is ", in_quotes(type),
                 "; supported are \"none\", \"linear\", \"yarn\""));
  }
  c.ignore({"rope.scaling.finetuned", "rope.scaling.original_context_length"});
  const WeightsFile::Entry* factors = entry_of(file, "rope_freqs.weight");
  if (!factors) return o;
  if (factors->shape != Shape{o.dims / 2} || type != "none")
    c.refuse(str("rope_freqs.weight has the shape ", factors->shape, "; expected [", o.dims / 2,
                 "], without rope.scaling"));
  const std::vector<double> values = file["rope_freqs.weight"].to_vector<double>();
  for (int64_t i = 0; i < o.dims / 2; ++i)
    o.frequencies.push_back(std::pow(o.base, -2 * double(i) / double(o.dims)) / values[size_t(i)]);
  return o;
}

}  // namespace

GgufModelConfig gguf_model_config(const GgufFile& file) {
  GgufModelConfig m;
  m.model_type = file.get<std::string>("general.architecture");
  const bool llama = m.model_type == "llama";
  check(llama || m.model_type == "qwen2" || m.model_type == "qwen3", "load_pretrained",
        one_line(file.path()), ": general.architecture is ", in_quotes(m.model_type),
        "; supported in GGUF files are \"llama\", \"qwen2\", \"qwen3\"");
  const WeightsFile::Entry* table = entry_of(file, "token_embd.weight");
  check(table != nullptr && table->shape.dim() == 2, "load_pretrained", one_line(file.path()),
        ": has no matrix token_embd.weight");
  JsonReader c = keys_of(file, m.model_type);
  LanguageModel::Options& o = m.config.options;
  o.vocabulary = table->shape[0];
  o.n_layers = c.size("block_count", {}, 10'000);
  o.input.scale = false;
  o.tied = entry_of(file, "output.weight") == nullptr;
  LayerOptions& layer = o.layer;
  layer.d_model = c.size("embedding_length");
  layer.norm_kind = NormKind::rms;
  layer.norm_eps = c.number("attention.layer_norm_rms_epsilon");
  MultiHeadAttention::Options& a = layer.attention;
  a.n_heads = c.size("attention.head_count");
  a.n_kv_heads = c.size("attention.head_count_kv", a.n_heads);
  a.d_key = c.size("attention.key_length", layer.d_model / a.n_heads);
  a.d_value = c.size("attention.value_length", a.d_key);
  a.bias = entry_of(file, "blk.0.attn_output.bias") != nullptr;
  a.q_bias = a.k_bias = a.v_bias = entry_of(file, "blk.0.attn_q.bias") != nullptr;
  a.window = c.integer("attention.sliding_window", 0);
  if (m.model_type == "qwen3")
    a.qk_norm = Norm::Options{.eps = layer.norm_eps, .kind = NormKind::rms};
  layer.feed_forward = {.d_hidden = c.size("feed_forward_length"),
                        .activation = Activation::silu,
                        .bias = entry_of(file, "blk.0.ffn_up.bias") != nullptr,
                        .gated = true};
  m.config.max_length = c.integer("context_length", 0);
  m.rotary = rotary_options(file, c, a.d_key, m.config.max_length);
  a.position = rotary(m.rotary);
  for (const char* name : {"expert_count", "expert_used_count"})
    if (c.integer(name, 0) != 0) c.refuse(str(name, " is ", c.integer(name), "; supported is 0"));
  c.ignore({"vocab_size"});  // the table has the size
  c.finish();
  m.config.names = llama_names(o);
  m.names = gguf_llama_names(o, llama ? GgufRows::pairs : GgufRows::halves);
  m.names.drop("rope_freqs.weight");
  return m;
}

namespace {

// Returns the id in a key of the tokenizer; nothing if it is absent or -1.
std::optional<int64_t> token_id(const GgufFile& file, const char* name, size_t n_tokens) {
  const std::string key = std::string("tokenizer.ggml.") + name;
  if (!file.find(key)) return {};
  const int64_t value = file.get<int64_t>(key);
  if (value == -1 || value == 0xFFFFFFFF) return {};
  check(value >= 0 && value < int64_t(n_tokens), "load_pretrained", one_line(file.path()), ": ",
        key, " is ", value, "; there are ", n_tokens, " tokens");
  return value;
}

}  // namespace

std::vector<int64_t> gguf_end_tokens(const GgufFile& file, const GgufVocabulary& v) {
  std::vector<int64_t> ends;
  const auto add = [&](int64_t id) {
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto id = token_id(file, name, v.tokens.size())) add(*id);
  // llama.cpp knows these names, too; the metadata of many files have the end of a text only.
  for (const char* name : {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>",
                           "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "</s>"})
    if (const auto at = std::find(v.tokens.begin(), v.tokens.end(), name); at != v.tokens.end())
      add(at - v.tokens.begin());
  return ends;
}

GgufVocabulary gguf_vocabulary(const GgufFile& file) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  GgufVocabulary v{.name = file.path()};
  v.model = file.get<std::string>(key("model"));
  v.pre = file.get<std::string>(key("pre"), "");
  v.tokens = file.get<std::vector<std::string>>(key("tokens"));
  v.merges = file.get<std::vector<std::string>>(key("merges"), {});
  for (const double score : file.get<std::vector<double>>(key("scores"), {}))
    v.scores.push_back(float(score));
  for (const int64_t type : file.get<std::vector<int64_t>>(key("token_type"), {}))
    v.token_types.push_back(int32_t(type));
  const auto id = [&](const char* name) { return token_id(file, name, v.tokens.size()); };
  v.bos = id("bos_token_id");
  v.eos = id("eos_token_id");
  v.unk = id("unknown_token_id");
  v.pad = id("padding_token_id");
  v.sep = id("seperator_token_id");
  v.cls = id("cls_token_id");
  const auto flag = [&](const char* name) -> std::optional<bool> {
    if (!file.find(key(name))) return {};
    return file.get<bool>(key(name));
  };
  v.add_bos = flag("add_bos_token");
  v.add_eos = flag("add_eos_token");
  v.add_space_prefix = flag("add_space_prefix");
  v.remove_extra_whitespaces = flag("remove_extra_whitespaces");
  for (const int64_t byte : file.get<std::vector<int64_t>>(key("precompiled_charsmap"), {}))
    v.charsmap += char(byte);
  return v;
}

}  // namespace stretto::nn::pretrained
