#include "pretrained/llama_like.h"

#include <algorithm>

#include "core/one_line.h"
#include "nn/models/moe.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {

std::vector<bool> layers_of_type(JsonReader& c, int64_t n_layers, const LayerTypes& known,
                                 const std::function<bool(int64_t)>& rule) {
  const std::vector<std::string> types = c.texts(known.field);
  if (!types.empty() && int64_t(types.size()) != n_layers)
    c.refuse(str('"', known.field, "\" has ", types.size(), " entries for ", n_layers, " layers"));
  std::vector<bool> all;
  for (int64_t i = 0; i < n_layers; ++i) {
    all.push_back(types.empty() ? rule(i) : types[size_t(i)] == known.type);
    if (!types.empty() && !all.back() && types[size_t(i)] != known.other)
      c.refuse(str('"', known.field, "\" has ", in_quotes(types[size_t(i)]), "; supported are ",
                   in_quotes(known.other), ", ", in_quotes(known.type)));
  }
  return all;
}

std::vector<int64_t> windows(JsonReader& c, int64_t n_layers, int64_t window,
                             const std::function<bool(int64_t)>& slides) {
  std::vector<int64_t> all;
  for (const bool sliding : layers_of_type(c, n_layers, {"sliding_attention"}, slides)) {
    if (sliding && window < 1)
      c.refuse(str("\"sliding_window\" is ", window, "; must be positive"));
    all.push_back(sliding ? window : 0);
  }
  return all;
}

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
  layer.norm_eps = read_eps(c, "rms_norm_eps", defaults.norm_eps);
  MultiHeadAttention::Options& a = layer.attention;
  a.n_heads = c.size("num_attention_heads");
  a.n_kv_heads = size_or(c, "num_key_value_heads",
                         defaults.n_kv_heads > 0 ? defaults.n_kv_heads : a.n_heads, a.n_heads);
  if (a.n_heads % a.n_kv_heads != 0)
    c.refuse(str("\"num_key_value_heads\" is ", a.n_kv_heads, ", not a divisor of ", a.n_heads));
  const bool derived = c.is_present("head_dim") ? !c.has("head_dim") : defaults.d_head == 0;
  if (derived && layer.d_model % a.n_heads != 0)
    c.refuse(str("\"hidden_size\" is ", layer.d_model, ", not a multiple of ", a.n_heads));
  const int64_t d_head = std::max<int64_t>(layer.d_model / a.n_heads, 1);
  a.d_key = a.d_value =
      size_or(c, "head_dim", defaults.d_head > 0 ? defaults.d_head : d_head, d_head);
  a.bias = c.flag("attention_bias", false);
  a.dropout = c.number("attention_dropout", 0);
  layer.feed_forward = {
      .d_hidden = defaults.d_hidden > 0 ? c.size("intermediate_size", defaults.d_hidden)
                                        : c.size("intermediate_size"),
      .activation = activation_of(c, c.text(defaults.activation_field, defaults.activation)),
      .bias = c.flag("mlp_bias", false),
      .gated = true};
  m.max_length = c.integer("max_position_embeddings", c.integer("max_sequence_length", 0));
  if (defaults.one_rope)
    a.position = rope(
        m,
        rotary_options(c, a.d_key, {.theta = defaults.theta, .max_length = defaults.max_length}));
  m.names = llama_names(o);
  c.ignore({"pretraining_tp", "is_llama_config", "transformers.js_config"});
  c.require("rope_interleaved", false);
  return m;
}

void set_windows(LanguageModel::Options& o, const std::vector<int64_t>& windows,
                 const MakePositionalEncoding& local) {
  o.vary_layer = [=](int64_t i, LayerOptions& layer) {
    layer.attention.window = windows[size_t(i)];
    if (local && layer.attention.window > 0) layer.attention.position = local;
  };
}

void set_experts(JsonReader& c, LanguageModel::Options& o, MoEOptions experts, int64_t d_hidden,
                 const std::function<bool(int64_t)>& has_experts) {
  if (experts.top_k > experts.n_experts)
    c.refuse(
        str("\"num_experts_per_tok\" is ", experts.top_k, " of ", experts.n_experts, " experts"));
  if (experts.n_experts > 10'000)
    c.refuse(str("the number of experts is ", experts.n_experts, "; expected 1 … 10000"));
  c.ignore({"router_aux_loss_coef", "output_router_logits"});  // a loss of training
  const auto before = o.vary_layer;
  o.vary_layer = [=](int64_t i, LayerOptions& layer) {
    if (before) before(i, layer);
    if (!has_experts(i)) return;
    layer.feed_forward.d_hidden = d_hidden;
    layer.feed_forward.network = moe(experts);
  };
}

void read_qwen_experts(JsonReader& c, LanguageModel::Options& o, MoEOptions experts, int64_t n,
                       int64_t d_hidden) {
  experts.n_experts = c.size("num_local_experts", c.size("num_experts", n));
  experts.normalize = c.flag("norm_topk_prob", experts.normalize);
  const int64_t step = c.size("decoder_sparse_step", 1);
  const std::vector<int64_t> dense = c.integers("mlp_only_layers");
  const int64_t d_expert = c.size("moe_intermediate_size", d_hidden);
  set_experts(c, o, experts, d_expert, [=](int64_t i) {
    return (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  });
}

}  // namespace stretto::nn::pretrained
