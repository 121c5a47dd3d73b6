#include "pretrained/llama_models.h"

#include <algorithm>
#include <cmath>

#include "nn/models/moe.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"
#include "pretrained/llama_inkling.h"
#include "pretrained/llama_latents.h"
#include "pretrained/llama_like.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {
namespace {

// Reads a soft cap; null is none.
double soft_cap(JsonReader& c, const char* name, double absent) {
  if (!c.has(name)) return c.is_present(name) ? 0 : absent;
  const double cap = c.number(name);
  if (cap <= 0) c.refuse(str('"', name, "\" is ", cap, "; must be positive, or null for none"));
  return cap;
}

LanguageModelConfig llama_config(JsonReader& c) { return llama_like(c, {}); }

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
  a.position = rope(m, rotary_options_of("full_attention", c, a.d_key, fields));
  fields.theta = 1e4;
  fields.theta_field = "rope_local_base_freq";
  const auto local = rope(m, rotary_options_of("sliding_attention", c, a.d_key, fields));
  set_windows(o, all, local);
  return m;
}

LanguageModelConfig qwen3_moe_config(JsonReader& c) {
  LanguageModelConfig m = llama_like(c, {.max_length = 32768, .n_kv_heads = 4});
  LanguageModel::Options& o = m.options;
  MultiHeadAttention::Options& a = o.layer.attention;
  a.qk_norm = Norm::Options{.eps = o.layer.norm_eps, .kind = NormKind::rms};
  const int64_t window = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 4096);
  a.window = c.flag("use_sliding_window", false) ? window : 0;
  c.ignore({"max_window_layers"});  // transformers does not use it
  read_qwen_experts(c, o, {.top_k = c.size("num_experts_per_tok", 8), .normalize = false}, 128,
                    768);
  return m;
}

LanguageModelConfig qwen2_moe_config(JsonReader& c) {
  LanguageModelConfig m = llama_like(c, {.max_length = 32768, .n_kv_heads = 16});
  LanguageModel::Options& o = m.options;
  MultiHeadAttention::Options& a = o.layer.attention;
  a.q_bias = a.k_bias = a.v_bias = c.flag("qkv_bias", true);
  a.out_bias = false;
  const int64_t given = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 4096);
  const int64_t window = c.flag("use_sliding_window", false) ? given : 0;
  const int64_t end = c.integer("max_window_layers", 28);
  set_windows(o, windows(c, o.n_layers, window,
                         [=](int64_t i) { return window != 0 && i % 2 == 0 && i < end; }));
  const int64_t d_shared = c.size("shared_expert_intermediate_size", 5632);
  read_qwen_experts(c, o,
                    {.top_k = c.size("num_experts_per_tok", 4),
                     .normalize = false,
                     .d_shared = d_shared,
                     .shared_gate = true},
                    60, 1408);
  return m;
}

LanguageModelConfig mixtral_config(JsonReader& c) {
  LanguageModelConfig m =
      llama_like(c, {.theta = 1e6, .max_length = 131072, .n_kv_heads = 8, .norm_eps = 1e-5});
  m.options.layer.attention.window = c.integer("sliding_window", 0);
  const MoEOptions experts{.n_experts = c.size("num_local_experts", 8),
                           .top_k = c.size("num_experts_per_tok", 2)};
  set_experts(c, m.options, experts, m.options.layer.feed_forward.d_hidden,
              [](int64_t) { return true; });
  if (c.number("router_jitter_noise", 0) != 0)
    c.refuse("\"router_jitter_noise\" is not 0, which is not supported");
  m.names = mixtral_names(m.options);
  return m;
}

// Phi-3: q, k and v in one matrix, and gate and up in another.
LanguageModelConfig phi3_config(JsonReader& c) {
  const LlamaDefaults defaults{.max_length = 4096, .one_rope = false, .norm_eps = 1e-5};
  LanguageModelConfig m = llama_like(c, defaults);
  MultiHeadAttention::Options& a = m.options.layer.attention;
  a.position = rope(m, rotary_options(c, a.d_key,
                                      {.theta = defaults.theta,
                                       .max_length = defaults.max_length,
                                       .share_field = "partial_rotary_factor",
                                       .phi3 = true}));
  a.window = c.integer("sliding_window", 0);
  for (const char* name : {"resid_pdrop", "embd_pdrop"})
    if (c.number(name, 0) != 0) c.refuse(str('"', name, "\" is not 0, which is not supported"));
  c.ignore({"original_max_position_embeddings"});  // of "longrope"
  m.names = phi3_names(m.options);
  return m;
}

// OLMo 2: norms of the branches' outputs, and of the queries and keys of all heads together. OLMo 3
// has a window in three of four layers, and its own RoPE for each type of layer.
LanguageModelConfig olmo_config(JsonReader& c, bool is_olmo3) {
  const LlamaDefaults defaults{
      .theta = is_olmo3 ? 5e5 : 1e4, .one_rope = !is_olmo3, .norm_eps = 1e-5};
  LanguageModelConfig m = llama_like(c, defaults);
  LanguageModel::Options& o = m.options;
  o.layer.norm = NormPlace::output;
  MultiHeadAttention::Options& a = o.layer.attention;
  a.qk_norm =
      Norm::Options{.dim = a.n_heads * a.d_key, .eps = o.layer.norm_eps, .kind = NormKind::rms};
  m.names = olmo2_names(o);
  if (!is_olmo3) return m;
  const int64_t window = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 4096);
  const std::vector<int64_t> all =
      windows(c, o.n_layers, window, [](int64_t i) { return (i + 1) % 4 != 0; });
  RopeFields fields{.theta = defaults.theta, .max_length = defaults.max_length};
  a.position = rope(m, rotary_options_of("full_attention", c, a.d_key, fields));
  fields.theta_field = nullptr;  // transformers reads "rope_theta" for full attention only
  set_windows(o, all, rope(m, rotary_options_of("sliding_attention", c, a.d_key, fields)));
  return m;
}

// Granite: factors of token vectors, scores, branches and logits.
LanguageModelConfig granite_config(JsonReader& c) {
  LanguageModelConfig m = llama_like(c, {});
  LanguageModel::Options& o = m.options;
  o.input.factor = c.number("embedding_multiplier", 1);
  o.layer.attention.scale = c.number("attention_multiplier", 1);
  o.layer.branch_scale = c.number("residual_multiplier", 1);
  const double divisor = c.number("logits_scaling", 1);
  if (divisor == 0) c.refuse("\"logits_scaling\" is 0; must not be 0, it divides the logits");
  o.logit_scale = 1 / divisor;
  return m;
}

// The RoPE of a gpt-oss whose configuration has no parameters of RoPE.
RotaryOptions gpt_oss_rope(JsonReader& c, int64_t d) {
  RotaryOptions o{.dims = d, .base = c.number("rope_theta", 150'000)};
  if (o.base <= 1) c.refuse(str("\"rope_theta\" is ", o.base, "; must be greater than 1"));
  o.frequencies = yarn_frequencies(
      {.dims = d, .base = o.base, .factor = 32, .length = 4096, .truncate = false});
  o.attention_factor = yarn_attention_factor(32);
  return o;
}

// gpt-oss: sinks, a window in every other layer, from the first one on, and experts with a gate of
// their own.
LanguageModelConfig gpt_oss_config(JsonReader& c) {
  if (c.has("quantization_config"))
    c.refuse(
        "\"quantization_config\" is set; supported are weights in bf16 or f32, as transformers "
        "saves the model after loading it with Mxfp4Config(dequantize=True)");
  const LlamaDefaults defaults{.theta = 150'000,
                               .max_length = 131072,
                               .n_kv_heads = 8,
                               .d_head = 64,
                               .one_rope = false,
                               .norm_eps = 1e-5};
  LanguageModelConfig m = llama_like(c, defaults);
  LanguageModel::Options& o = m.options;
  MultiHeadAttention::Options& a = o.layer.attention;
  a.bias = c.flag("attention_bias", true);
  a.sinks = true;
  const bool has_rope = c.is_present("rope_parameters") || c.has("rope_scaling");
  const RopeFields fields{.theta = defaults.theta, .max_length = defaults.max_length};
  a.position = rope(m, has_rope ? rotary_options(c, a.d_key, fields) : gpt_oss_rope(c, a.d_key));
  const int64_t window = c.integer("sliding_window", c.is_present("sliding_window") ? 0 : 128);
  set_windows(o, windows(c, o.n_layers, window, [](int64_t i) { return i % 2 == 0; }));
  FeedForward::Options& f = o.layer.feed_forward;
  f.bias = true;
  f.clamped = {.alpha = c.number("swiglu_alpha", 1.702), .limit = c.number("swiglu_limit", 7)};
  if (f.clamped->limit <= 0)
    c.refuse(str("\"swiglu_limit\" is ", f.clamped->limit, "; must be positive"));
  c.require("hidden_act", "silu");
  const MoEOptions experts{.n_experts = c.size("num_local_experts", 128, 10'000),
                           .top_k = c.size("num_experts_per_tok", 4),
                           .router_bias = true};
  if (c.size("experts_per_token", experts.top_k) != experts.top_k)
    c.refuse("\"experts_per_token\" differs from \"num_experts_per_tok\"; both must be equal");
  set_experts(c, o, experts, f.d_hidden, [](int64_t) { return true; });
  c.ignore({"initial_context_length"});  // transformers reads the parameters of RoPE
  m.names = gpt_oss_names(o, experts.n_experts);
  return m;
}

}  // namespace

const std::vector<std::pair<std::string, MakeConfig>>& llama_models() {
  static const std::vector<std::pair<std::string, MakeConfig>> all{
      {"llama", llama_config},
      {"mistral", mistral_config},
      {"mixtral", mixtral_config},
      {"qwen2", [](JsonReader& c) { return qwen_config(c, false); }},
      {"qwen2_moe", qwen2_moe_config},
      {"qwen3", [](JsonReader& c) { return qwen_config(c, true); }},
      {"qwen3_moe", qwen3_moe_config},
      {"phi3", phi3_config},
      {"deepseek_v2", deepseek_v2_config},
      {"deepseek_v3", deepseek_v3_config},
      {"inkling_text", inkling_config},
      {"inkling2_text", inkling2_config},
      {"smollm3", smollm3_config},
      {"gemma2", [](JsonReader& c) { return gemma_config(c, false); }},
      {"gemma3_text", [](JsonReader& c) { return gemma_config(c, true); }},
      {"olmo2", [](JsonReader& c) { return olmo_config(c, false); }},
      {"olmo3", [](JsonReader& c) { return olmo_config(c, true); }},
      {"granite", granite_config},
      {"gpt_oss", gpt_oss_config}};
  return all;
}

}  // namespace stretto::nn::pretrained
