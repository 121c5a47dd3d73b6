// Writes a model as a GGUF file.
#include "core/one_line.h"
#include "pretrained/files/published_names.h"
#include "pretrained/gguf_model.h"
#include "pretrained/lora.h"
#include "pretrained/pretrained.h"
#include "pretrained/rope_config.h"

namespace stretto::nn {

namespace {

constexpr const char* op = "save_gguf";

// The keys of the architecture.
void add_sizes(files::GgufWriter& file, const std::string& type, const Pretrained& p,
               const std::string& path) {
  const LanguageModel& model = p.language_model();
  const LanguageModel::Options& o = model.options;
  const MultiHeadAttention::Options& a = model.layers[0].options.attention;
  for (int64_t i = 0; i < o.n_layers; ++i)
    check(model.layers[i].options.attention.window == a.window, op, one_line(path),
          ": layers with different windows");
  const int64_t d_key = a.d_key > 0 ? a.d_key : o.layer.d_model / a.n_heads;
  pretrained::JsonReader config = pretrained::JsonReader::parse(op, path, p.files.config);
  const RotaryOptions rope =
      pretrained::rotary_options(config, d_key, {.max_length = p.max_length});
  check(rope.frequencies.empty() && rope.dims == d_key, op, one_line(path),
        ": the model's RoPE is scaled or partial; supported is the type \"linear\"");
  const std::string prefix = type + ".";
  const auto size = [&](const char* name, int64_t value) {
    file.key(prefix + name, uint32_t(value));
  };
  size("block_count", o.n_layers);
  size("context_length", p.max_length);
  size("embedding_length", o.layer.d_model);
  size("feed_forward_length", o.layer.feed_forward.d_hidden);
  size("attention.head_count", a.n_heads);
  size("attention.head_count_kv", a.n_kv_heads > 0 ? a.n_kv_heads : a.n_heads);
  size("attention.key_length", d_key);
  size("attention.value_length", d_key);
  if (a.window > 0) size("attention.sliding_window", a.window);
  file.key(prefix + "attention.layer_norm_rms_epsilon", float(o.layer.norm_eps.value()));
  size("rope.dimension_count", d_key);
  file.key(prefix + "rope.freq_base", float(rope.base));
  if (rope.scale != 1) {
    file.key(prefix + "rope.scaling.type", std::string("linear"));
    file.key(prefix + "rope.scaling.factor", float(rope.scale));
  }
  size("vocab_size", o.vocabulary);
}

void add_tokenizer(files::GgufWriter& file, const Pretrained& p) {
  GgufVocabulary v = p.tokenizer->to_gguf();
  const auto n = size_t(p.language_model().options.vocabulary);
  for (size_t id = v.tokens.size(); id < n; ++id) {
    v.tokens.push_back(str("[PAD", id, "]"));
    v.token_types.push_back(5);  // unused
  }
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  file.key(key("model"), v.model);
  file.key(key("pre"), v.pre);
  file.key(key("tokens"), v.tokens);
  file.key(key("token_type"), v.token_types);
  file.key(key("merges"), v.merges);
  const auto id = [&](const char* name, const std::optional<int64_t>& value) {
    if (value) file.key(key(name), uint32_t(*value));
  };
  id("bos_token_id", v.bos);
  id("eos_token_id", v.eos);
  id("unknown_token_id", v.unk);
  id("padding_token_id", v.pad);
  file.key(key("add_bos_token"), v.add_bos.value());
  file.key(key("add_eos_token"), v.add_eos.value());
  if (!p.chat_template.empty()) file.key("tokenizer.chat_template", p.chat_template);
}

}  // namespace

void save_gguf(const std::string& path, const Pretrained& p, GgufType type) {
  const std::string where = one_line(path);
  const bool llama = p.model_type == "llama" || p.model_type == "mistral";
  check(llama || p.model_type == "qwen2" || p.model_type == "qwen3", op, where, ": a ",
        p.model_type, " model; supported are llama, mistral, qwen2 and qwen3");
  check(p.tokenizer.has_value(), op, where, ": the model has no tokenizer");
  check(lora_parameters(*p.model).empty(), op, where,
        ": the model has adapters; add them to the weights by merge_lora()");
  const LanguageModel& model = p.language_model();
  files::GgufWriter file;
  const std::string architecture = llama ? "llama" : p.model_type;
  file.key("general.architecture", architecture);
  file.key("general.alignment", uint32_t(32));
  add_sizes(file, architecture, p, path);
  add_tokenizer(file, p);
  const NameMap names = gguf_llama_names(model.options, llama ? GgufRows::pairs : GgufRows::halves);
  for (const NamedTensor& n : names.backwards(model.named_parameters()))
    file.tensor(n.name, n.tensor, type);
  file.write(path);
}

}  // namespace stretto::nn
