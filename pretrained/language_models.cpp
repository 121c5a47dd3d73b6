#include "pretrained/language_models.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/one_line.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {
namespace {

// Reads a size that is `absent` without its field, and `null` if the field is null.
int64_t size_or(JsonReader& c, const char* name, int64_t absent, std::optional<int64_t> null) {
  return c.size(name, c.is_present(name) ? null : absent);
}

// Reads a soft cap; null is none.
double soft_cap(JsonReader& c, const char* name, double absent) {
  if (!c.has(name)) return c.is_present(name) ? 0 : absent;
  const double cap = c.number(name);
  if (cap <= 0) c.refuse(str('"', name, "\" is ", cap, "; must be positive, or null for none"));
  return cap;
}

// Returns the window of each layer (0: none): "layer_types" of transformers 5, or the rule of
// transformers 4 for layer i.
std::vector<int64_t> windows(JsonReader& c, int64_t n_layers, int64_t window,
                             const std::function<bool(int64_t)>& slides) {
  const std::vector<std::string> types = c.texts("layer_types");
  if (!types.empty() && int64_t(types.size()) != n_layers)
    c.refuse(str("\"layer_types\" has ", types.size(), " entries for ", n_layers, " layers"));
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n_layers; ++i) {
    bool sliding = slides(i);
    if (!types.empty()) {
      sliding = types[size_t(i)] == "sliding_attention";
      if (!sliding && types[size_t(i)] != "full_attention")
        c.refuse(str("\"layer_types\" has ", in_quotes(types[size_t(i)]),
                     "; supported are \"full_attention\", \"sliding_attention\""));
    }
    if (sliding && window < 1)
      c.refuse(str("\"sliding_window\" is ", window, "; must be positive"));
    all.push_back(sliding ? window : 0);
  }
  return all;
}

// What transformers takes for absent fields of LLaMA and its descendants.
struct LlamaDefaults {
  double theta = 10000;
  int64_t max_length = 2048;
  int64_t n_kv_heads = 0, d_head = 0;  // 0: n_heads, d_model / n_heads
  bool tied = false;
  bool one_rope = true;  // for all layers
  const char* activation_field = "hidden_act";
  const char* activation = "silu";
};

// Reads the fields that LLaMA and its descendants have in common.
LanguageModelConfig llama_like(JsonReader& c, const LlamaDefaults& defaults) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = c.size("num_hidden_layers", {}, 10'000);
  o.input.scale = false;
  o.tied = c.flag("tie_word_embeddings", defaults.tied);
  LayerOptions& layer = o.layer;
  layer.d_model = c.size("hidden_size");
  layer.norm_kind = NormKind::rms;
  layer.norm_eps = read_eps(c, "rms_norm_eps", 1e-6);
  MultiHeadAttention::Options& a = layer.attention;
  a.n_heads = c.size("num_attention_heads");
  a.n_kv_heads = size_or(c, "num_key_value_heads",
                         defaults.n_kv_heads > 0 ? defaults.n_kv_heads : a.n_heads, a.n_heads);
  if (a.n_heads % a.n_kv_heads != 0)
    c.refuse(str("\"num_key_value_heads\" is ", a.n_kv_heads, ", not a divisor of ", a.n_heads));
  if (!c.has("head_dim") && layer.d_model % a.n_heads != 0)
    c.refuse(str("\"hidden_size\" is ", layer.d_model, ", not a multiple of ", a.n_heads));
  const int64_t d_head = std::max<int64_t>(layer.d_model / a.n_heads, 1);
  a.d_key = a.d_value =
      size_or(c, "head_dim", defaults.d_head > 0 ? defaults.d_head : d_head, d_head);
  a.bias = c.flag("attention_bias", false);
  a.dropout = c.number("attention_dropout", 0);
  layer.feed_forward = {
      .d_hidden = c.size("intermediate_size"),
      .activation = activation_of(c, c.text(defaults.activation_field, defaults.activation)),
      .bias = c.flag("mlp_bias", false),
      .gated = true};
  m.max_length = c.integer("max_position_embeddings", c.integer("max_sequence_length", 0));
  if (defaults.one_rope)
    a.position = rotary(
        rotary_options(c, a.d_key, {.theta = defaults.theta, .max_length = defaults.max_length}));
  m.names = llama_names(o);
  c.ignore({"pretraining_tp", "is_llama_config", "transformers.js_config"});
  c.require("rope_interleaved", false);
  return m;
}

LanguageModelConfig llama_config(JsonReader& c) { return llama_like(c, {}); }

void set_windows(LanguageModel::Options& o, const std::vector<int64_t>& windows) {
  o.vary_layer = [windows](int64_t i, LayerOptions& layer) {
    layer.attention.window = windows[size_t(i)];
  };
}

// Mistral has one window for all layers.
LanguageModelConfig mistral_config(JsonReader& c) {
  LanguageModelConfig m = llama_like(c, {.max_length = 131072, .n_kv_heads = 8});
  const int64_t n = m.options.n_layers;
  const int64_t window = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 4096);
  const auto slides = [=](int64_t) { return window != 0; };
  const std::vector<int64_t> all = windows(c, n, window, slides);
  if (all != std::vector<int64_t>(size_t(n), window))
    c.refuse("\"layer_types\" contradicts \"sliding_window\", which is for all layers of Mistral");
  set_windows(m.options, all);
  return m;
}

// Qwen2 slides over the layers from max_window_layers on, if at all.
LanguageModelConfig qwen_config(JsonReader& c, bool is_qwen3) {
  LanguageModelConfig m =
      llama_like(c, {.max_length = 32768, .n_kv_heads = 32, .d_head = is_qwen3 ? 128 : 0});
  MultiHeadAttention::Options& a = m.options.layer.attention;
  if (is_qwen3) {
    a.qk_norm = Norm::Options{.eps = m.options.layer.norm_eps, .kind = NormKind::rms};
  } else {
    a.q_bias = a.k_bias = a.v_bias = true;
    a.out_bias = false;
  }
  c.require("use_mrope", false);
  const int64_t given = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 4096);
  const int64_t window = c.flag("use_sliding_window", false) ? given : 0;
  const int64_t first = c.integer("max_window_layers", 28);
  set_windows(m.options, windows(c, m.options.n_layers, window,
                                 [=](int64_t i) { return window != 0 && i >= first; }));
  return m;
}

// SmolLM3: some layers have no position ("no_rope_layers" has a 0), and only they may slide.
LanguageModelConfig smollm3_config(JsonReader& c) {
  LanguageModelConfig m =
      llama_like(c, {.theta = 2'000'000, .max_length = 32768, .n_kv_heads = 4, .tied = true});
  const int64_t n = m.options.n_layers;
  const int64_t interval = c.size("no_rope_layer_interval", 4);
  std::vector<int64_t> rotated = c.integers("no_rope_layers");
  if (rotated.empty())
    for (int64_t i = 0; i < n; ++i) rotated.push_back((i + 1) % interval != 0);
  if (int64_t(rotated.size()) != n)
    c.refuse(str("\"no_rope_layers\" has ", rotated.size(), " entries for ", n, " layers"));
  const int64_t given = c.integer("sliding_window", 0);
  const int64_t window = c.flag("use_sliding_window", false) ? given : 0;
  const std::vector<int64_t> all =
      windows(c, n, window, [&](int64_t i) { return window != 0 && rotated[size_t(i)] == 0; });
  c.ignore({"max_window_layers"});  // transformers does not use it
  m.options.vary_layer = [all, rotated](int64_t i, LayerOptions& layer) {
    layer.attention.window = all[size_t(i)];
    if (rotated[size_t(i)] == 0) layer.attention.position = {};
  };
  return m;
}

// Gemma 2: sandwich norms, soft caps, and a window in every other layer, from the first one on.
// Gemma 3: norms of q and k in place of soft caps, and a window in all layers except every sixth.
// Layers with a window have RoPE with another base.
LanguageModelConfig gemma_config(JsonReader& c, bool is_gemma3) {
  const LlamaDefaults defaults{.theta = is_gemma3 ? 1e6 : 1e4,
                               .max_length = is_gemma3 ? 131072 : 8192,
                               .n_kv_heads = 4,
                               .d_head = 256,
                               .tied = true,
                               .one_rope = !is_gemma3,
                               .activation_field = "hidden_activation",
                               .activation = "gelu_pytorch_tanh"};
  LanguageModelConfig m = llama_like(c, defaults);
  LanguageModel::Options& o = m.options;
  o.input.scale = true;
  o.layer.norm = NormPlace::sandwich;
  const double scalar = c.number("query_pre_attn_scalar", 256);
  if (scalar <= 0) c.refuse(str("\"query_pre_attn_scalar\" is ", scalar, "; must be positive"));
  o.layer.attention.scale = 1 / std::sqrt(scalar);
  o.layer.attention.soft_cap = soft_cap(c, "attn_logit_softcapping", is_gemma3 ? 0 : 50);
  if (is_gemma3 && o.layer.attention.soft_cap > 0)
    c.refuse("\"attn_logit_softcapping\" is set, which Gemma 3 does not use; set it to null");
  o.soft_cap = soft_cap(c, "final_logit_softcapping", is_gemma3 ? 0 : 30);
  c.require("use_bidirectional_attention", false);
  c.ignore({"hidden_act", "cache_implementation"});  // the program reads hidden_activation
  const int64_t window = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 4096);
  const int64_t pattern = is_gemma3 ? c.size("sliding_window_pattern", 6) : 2;
  const std::vector<int64_t> all =
      windows(c, o.n_layers, window, [=](int64_t i) { return (i + 1) % pattern != 0; });
  set_windows(o, all);
  m.names = gemma_names(o);
  if (!is_gemma3) return m;
  MultiHeadAttention::Options& a = o.layer.attention;
  a.qk_norm = Norm::Options{.eps = o.layer.norm_eps, .kind = NormKind::rms};
  c.ignore({"_sliding_window_pattern"});  // transformers repeats the pattern of layer_types
  RopeFields fields{.theta = defaults.theta, .max_length = defaults.max_length};
  a.position = rotary(rotary_options_of("full_attention", c, a.d_key, fields));
  fields.theta = 1e4;
  fields.theta_field = "rope_local_base_freq";
  const auto local = rotary(rotary_options_of("sliding_attention", c, a.d_key, fields));
  o.vary_layer = [all, local](int64_t i, LayerOptions& layer) {
    layer.attention.window = all[size_t(i)];
    if (all[size_t(i)] > 0) layer.attention.position = local;
  };
  return m;
}

// Reads the dropouts of a model whose configuration has one for embeddings and one for branches;
// `absent` is their default. Without the former, embeddings have the dropout of branches.
void read_dropout(JsonReader& c, LanguageModel::Options& o, const char* attention,
                  const char* branches, const char* embeddings, double absent) {
  o.layer.attention.dropout = c.number(attention, absent);
  o.layer.dropout = c.number(branches, absent);
  o.layer.feed_forward.dropout = 0;
  if (embeddings && c.number(embeddings, o.layer.dropout) != o.layer.dropout)
    c.refuse(str("\"", embeddings, "\" differs from \"", branches, "\"; both must be equal"));
}

// Reads the sizes under the names of GPT-2; `dropout` is the default of its dropouts.
LanguageModelConfig gpt_like(JsonReader& c, int64_t max_length, double dropout) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = c.size("n_layer", {}, 10'000);
  o.input.scale = false;
  o.layer.d_model = c.size("n_embd");
  o.layer.attention.n_heads = c.size("n_head");
  o.layer.feed_forward = {
      .d_hidden = c.size("n_inner", 4 * o.layer.d_model),
      .activation = activation_of(c, c.text("activation_function", "gelu_new"))};
  o.layer.norm_eps = read_eps(c, "layer_norm_epsilon", 1e-5);
  m.max_length = c.size("n_positions", max_length);
  read_dropout(c, o, "attn_pdrop", "resid_pdrop", "embd_pdrop", dropout);
  c.ignore({"n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
            "summary_type", "summary_use_proj"});
  return m;
}

LanguageModelConfig gpt2_config(JsonReader& c) {
  LanguageModelConfig m = gpt_like(c, 1024, 0.1);
  m.options.input.learned_length = m.max_length;
  m.options.tied = c.flag("tie_word_embeddings", true);
  if (!c.flag("scale_attn_weights", true)) m.options.layer.attention.scale = 1;
  c.require("scale_attn_by_inverse_layer_idx", false);
  c.ignore({"reorder_and_upcast_attn"});  // another order of the same operations
  m.names = gpt2_names(m.options);
  return m;
}

LanguageModelConfig gptj_config(JsonReader& c) {
  LanguageModelConfig m = gpt_like(c, 2048, 0);
  LanguageModel::Options& o = m.options;
  o.layer.attention.bias = false;
  o.layer.attention.position =
      rotary({.dims = size_or(c, "rotary_dim", 64, {}), .pairing = RotaryPairing::interleaved});
  o.layer.residual = Residual::parallel_one_norm;
  o.tied = c.flag("tie_word_embeddings", false);
  o.output_bias = !o.tied;
  c.ignore({"rotary", "scale_attn_weights"});
  m.names = gptj_names(o);
  return m;
}

LanguageModelConfig gpt_neox_config(JsonReader& c) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = c.size("num_hidden_layers", {}, 10'000);
  o.input.scale = false;
  o.tied = c.flag("tie_word_embeddings", false);
  o.layer.d_model = c.size("hidden_size");
  o.layer.attention.n_heads = c.size("num_attention_heads");
  o.layer.attention.bias = c.flag("attention_bias", true);
  o.layer.feed_forward = {.d_hidden = c.size("intermediate_size"),
                          .activation = activation_of(c, c.text("hidden_act", "gelu"))};
  o.layer.norm_eps = read_eps(c, "layer_norm_eps", 1e-5);
  if (c.flag("use_parallel_residual", true)) o.layer.residual = Residual::parallel;
  read_dropout(c, o, "attention_dropout", "hidden_dropout", nullptr, 0);
  c.ignore({"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"});
  m.max_length = c.integer("max_position_embeddings", 2048);
  o.layer.attention.position = rotary(rotary_options(
      c, o.layer.d_model / o.layer.attention.n_heads,
      {.theta_field = "rotary_emb_base", .share_field = "rotary_pct", .share = 0.25}));
  m.names = gpt_neox_names(o);
  return m;
}

// Reads a size that has two names, which must agree.
int64_t size_of_names(JsonReader& c, const char* name, const char* other, int64_t fallback,
                      int64_t largest = 1 << 24) {
  const int64_t size = c.size(name, c.has(other) ? c.size(other, {}, largest) : fallback, largest);
  if (c.size(other, size) != size)
    c.refuse(str('"', name, "\" differs from \"", other, "\"; both must be equal"));
  return size;
}

LanguageModelConfig bloom_config(JsonReader& c) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = size_of_names(c, "n_layer", "num_hidden_layers", 2, 10'000);
  o.layer.d_model = size_of_names(c, "hidden_size", "n_embed", 64);
  o.layer.attention = {.n_heads = size_of_names(c, "n_head", "num_attention_heads", 8),
                       .position = alibi()};
  o.layer.feed_forward = {.d_hidden = 4 * o.layer.d_model, .activation = Activation::gelu_tanh};
  o.layer.norm_eps = read_eps(c, "layer_norm_epsilon", 1e-5);
  o.input = {.scale = false, .norm = true};
  o.tied = c.flag("tie_word_embeddings", true);
  read_dropout(c, o, "attention_dropout", "hidden_dropout", nullptr, 0);
  c.require("apply_residual_connection_post_layernorm", false);
  c.ignore({"pretraining_tp", "slow_but_exact", "offset_alibi", "seq_length", "skip_bias_add",
            "skip_bias_add_qkv", "masked_softmax_fusion", "bias_dropout_fusion",
            "attention_softmax_in_fp32"});
  m.names = bloom_names(o);
  return m;
}

using Make = std::function<LanguageModelConfig(JsonReader&)>;

const std::vector<std::pair<std::string, Make>>& makers() {
  static const std::vector<std::pair<std::string, Make>> all{
      {"llama", llama_config},
      {"mistral", mistral_config},
      {"qwen2", [](JsonReader& c) { return qwen_config(c, false); }},
      {"qwen3", [](JsonReader& c) { return qwen_config(c, true); }},
      {"smollm3", smollm3_config},
      {"gemma2", [](JsonReader& c) { return gemma_config(c, false); }},
      {"gemma3_text", [](JsonReader& c) { return gemma_config(c, true); }},
      {"gpt2", gpt2_config},
      {"gpt_neox", gpt_neox_config},
      {"gptj", gptj_config},
      {"bloom", bloom_config}};
  return all;
}

}  // namespace

std::vector<std::string> language_model_types() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

LanguageModelConfig language_model_config(const std::string& model_type, JsonReader& config) {
  config.ignore({"is_decoder"});  // always causal
  for (const auto& [name, make] : makers())
    if (name == model_type) return make(config);
  config.refuse(str("model type ", in_quotes(model_type), " is not a language model"));
}

double read_eps(JsonReader& config, const char* name, double fallback) {
  const double eps = config.number(name, fallback);
  if (eps < 0) config.refuse(str('"', name, "\" is ", eps, "; must not be negative"));
  return eps;
}

Activation activation_of(const JsonReader& config, const std::string& name) {
  static const std::vector<std::pair<std::string, Activation>> all{
      {"relu", Activation::relu},           {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"silu", Activation::silu},           {"swish", Activation::silu},
      {"gelu_fast", Activation::gelu_tanh}, {"gelu_python", Activation::gelu}};
  std::string names;
  for (const auto& [known, activation] : all) {
    if (known == name) return activation;
    names += (names.empty() ? "" : ", ") + known;
  }
  config.refuse(str("activation ", in_quotes(name), " is not supported; supported are ", names));
}

void ignore_general_fields(JsonReader& config) {
  // Names, tokens and training.
  config.ignore({"_name_or_path",
                 "_model_name_or_path",
                 "name_or_path",
                 "_commit_hash",
                 "architectures",
                 "model_type",
                 "transformers_version",
                 "torch_dtype",
                 "dtype",
                 "use_cache",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "_num_labels",
                 "return_dict",
                 "output_attentions",
                 "output_hidden_states",
                 "output_past",
                 "problem_type",
                 "initializer_range",
                 "chunk_size_feed_forward",
                 "gradient_checkpointing",
                 "tokenizer_class",
                 "task_specific_params",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "unk_token_id",
                 "sep_token_id",
                 "cls_token_id",
                 "mask_token_id",
                 "decoder_start_token_id",
                 "_attn_implementation",
                 "_attn_implementation_autoset",
                 "torchscript",
                 "finetuning_task",
                 "prefix",
                 "use_bfloat16",
                 "tf_legacy_loss",
                 "sentence_transformers",
                 "sbert_ce_default_activation_function",
                 "unsloth_fixed",
                 "unsloth_version"});
  // Generation: transformers 4 had these fields in every configuration.
  config.ignore({"do_sample",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "max_length",
                 "min_length",
                 "num_beams",
                 "num_beam_groups",
                 "num_return_sequences",
                 "diversity_penalty",
                 "repetition_penalty",
                 "length_penalty",
                 "early_stopping",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "exponential_decay_length_penalty",
                 "output_scores",
                 "return_dict_in_generate",
                 "remove_invalid_values"});
  if (config.is_present("is_causal") && !config.has("is_causal"))  // for transformers, false
    config.refuse("\"is_causal\" is null; supported is to leave it out");
  for (const char* name : {"add_cross_attention", "tie_encoder_decoder"})
    config.require(name, false);
  if (const auto heads = config.object("pruned_heads")) heads->finish();
}

}  // namespace stretto::nn::pretrained
