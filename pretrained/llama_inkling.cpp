#include "pretrained/llama_inkling.h"

#include <algorithm>
#include <cmath>

#include "nn/positions/relative_table.h"
#include "pretrained/files/published_names.h"
#include "pretrained/llama_like.h"

namespace stretto::nn::pretrained {
namespace {

using Attention = MultiHeadAttention::Options;

// What transformers takes for absent fields of the layers with a window.
struct WindowDefaults {
  int64_t n_heads, n_kv_heads, window;
};

// The attention of the layers with a window. Their tables end where the window does.
Attention with_window(JsonReader& c, Attention a, InklingRelativeOptions position,
                      const WindowDefaults& defaults) {
  a.n_heads = c.size("swa_num_attention_heads", defaults.n_heads);
  a.n_kv_heads = c.size("swa_num_key_value_heads", defaults.n_kv_heads);
  if (a.n_heads % a.n_kv_heads != 0)
    c.refuse(
        str("\"swa_num_key_value_heads\" is ", a.n_kv_heads, ", not a divisor of ", a.n_heads));
  a.d_key = a.d_value = c.size("swa_head_dim", 128);
  if (a.scale) a.scale = 1 / double(a.d_key);
  a.window = size_of_names(c, "sliding_window_size", "sliding_window", defaults.window);
  position.extent = a.window;
  position.log_floor = 0;
  a.position = inkling_relative(position);
  return a;
}

// Reads the sizes, embedding and convolutions of both Inklings.
LanguageModelConfig read_common(JsonReader& c, const LlamaDefaults& defaults) {
  LanguageModelConfig m = llama_like(c, defaults);
  LanguageModel::Options& o = m.options;
  for (const char* absent : {"tie_word_embeddings", "attention_bias", "mlp_bias"})
    c.require(absent, false);  // transformers does not read them
  m.max_length =
      size_of_names(c, "max_position_embeddings", "model_max_length", defaults.max_length);
  o.input.norm = true;
  o.layer.branch_taps = size_of_names(c, "conv_kernel_size", "sconv_kernel_size", 4, 1024);
  o.layer.attention.taps = o.layer.branch_taps;
  return m;
}

// Reads the position of the layers without a window.
InklingRelativeOptions read_position(JsonReader& c) {
  InklingRelativeOptions position{.dim = c.size("d_rel", 16),
                                  .extent = c.size("rel_extent", 1024),
                                  .log_strength = c.number("log_scaling_alpha", 0.1)};
  if (position.log_strength < 0)
    c.refuse(str("\"log_scaling_alpha\" is ", position.log_strength, "; must not be negative"));
  return position;
}

// Reads a number above 0.
double positive(JsonReader& c, const char* name, double absent) {
  const double x = c.number(name, absent);
  if (x <= 0) c.refuse(str('"', name, "\" is ", x, "; must be positive"));
  return x;
}

// Returns which layers have a window: all but every sixth, unless a field lists them.
std::vector<bool> window_layers(JsonReader& c, int64_t n_layers) {
  const std::vector<int64_t> local = c.integers("local_layer_ids");
  const bool listed = c.has("local_layer_ids");
  return layers_of_type(c, n_layers, {"hybrid_sliding", "hybrid"}, [&](int64_t i) {
    return listed ? std::find(local.begin(), local.end(), i) != local.end() : (i + 1) % 6 != 0;
  });
}

// Sets the number of logits and their factor.
void read_head(JsonReader& c, LanguageModel::Options& o) {
  const char* const name = c.has("embedding_multiplier") ? "embedding_multiplier"  // an alias
                                                         : "logits_mup_width_multiplier";
  const double divisor = c.number(name, 24);
  if (divisor == 0 || c.number("logits_mup_width_multiplier", divisor) != divisor)
    c.refuse(str("\"", name, "\" is ", divisor,
                 "; must not be 0, it divides the logits, and have one value"));
  o.logit_scale = 1 / divisor;
  o.n_logits = std::min(c.size("unpadded_vocab_size", o.vocabulary), o.vocabulary);
  if (o.n_logits == o.vocabulary) o.n_logits = 0;
}

}  // namespace

LanguageModelConfig inkling_config(JsonReader& c) {
  LanguageModelConfig m = read_common(
      c,
      {.max_length = 131072, .n_kv_heads = 8, .d_head = 128, .d_hidden = 24576, .one_rope = false});
  LanguageModel::Options& o = m.options;
  o.layer.network_scale = true;
  InklingRelativeOptions position = read_position(c);
  if (c.has("log_scaling_n_floor")) position.log_floor = c.size("log_scaling_n_floor");
  Attention& a = o.layer.attention;
  a.qk_norm = Norm::Options{.eps = o.layer.norm_eps, .kind = NormKind::rms};
  a.scale = 1 / double(a.d_key);  // q and k are normalized
  a.position = inkling_relative(position);
  const Attention local = with_window(c, a, position, {64, 16, 512});
  const std::vector<bool> has_window = window_layers(c, o.n_layers);
  o.vary_layer = [=](int64_t i, LayerOptions& layer) {
    if (has_window[size_t(i)]) layer.attention = local;
  };

  const int64_t first = c.integer("dense_mlp_idx", 0);
  const auto has_experts = layers_of_type(c, o.n_layers, {"sparse", "dense", "mlp_layer_types"},
                                          [=](int64_t i) { return i >= first; });
  int64_t d_expert = c.size("moe_intermediate_size", 3072);
  if (c.has("dense_intermediate_size")) {  // then "intermediate_size" is that of the experts
    d_expert = o.layer.feed_forward.d_hidden;
    o.layer.feed_forward.d_hidden = c.size("dense_intermediate_size");
  }
  const MoEOptions experts{
      .n_experts = size_of_names(c, "n_routed_experts", "num_local_experts", 256, 10'000),
      .top_k = c.size("num_experts_per_tok", 6),
      .score = RouterScore::sigmoid,
      .scale = c.number("route_scale", 8),
      .n_always = c.size("n_shared_experts", 2, 10'000),
      .selection_bias = true};
  set_experts(c, o, experts, d_expert, [=](int64_t i) { return has_experts[size_t(i)]; });
  c.require("shared_expert_sink", true);
  read_head(c, o);
  c.ignore({"rms_norm_eps_moe_gate", "number_of_conv_states", "num_mtp_layers",
            "chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids"});
  m.names = inkling_names(o, has_experts, experts);
  return m;
}

// Inkling 2. Layers without a window have other inputs of q, k and v, and dynamic convolutions.
LanguageModelConfig inkling2_config(JsonReader& c) {
  LanguageModelConfig m = read_common(
      c,
      {.max_length = 1048576, .n_kv_heads = 8, .d_head = 128, .d_hidden = 2304, .one_rope = false});
  LanguageModel::Options& o = m.options;
  c.require("hidden_act", "silu");
  c.require("scoring_func", "sigmoid");
  o.depth_block = c.size("n_layers_per_attn_res_block", 6);
  o.layer.branch_scale = 1 / std::sqrt(double(o.layer.branch_taps + 1));

  InklingRelativeOptions position = read_position(c);
  position.clip = positive(c, "rel_l2_clip_threshold", 8);
  position.log_floor = c.size("log_scaling_n_floor", 128000);
  Attention& a = o.layer.attention;
  a.qk_clip = positive(c, "qk_l2_clip_threshold", 22.627416997969522);
  a.v_norm_eps = o.layer.norm_eps;
  a.separate_inputs = a.dynamic_taps = a.scaled_taps = a.query_sinks = true;
  a.gate = AttentionGate::per_element;
  a.position = inkling_relative(position);
  Attention local = with_window(c, a, position, {48, 8, 1024});
  local.separate_inputs = local.dynamic_taps = false;
  const std::vector<bool> has_window = layers_of_type(c, o.n_layers, {"hybrid_sliding", "hybrid"},
                                                      [](int64_t i) { return (i + 1) % 6 != 0; });
  o.vary_layer = [=](int64_t i, LayerOptions& layer) {
    if (has_window[size_t(i)]) layer.attention = local;
  };

  o.layer.feed_forward.capped = {.gate = positive(c, "mlp_gate_softcap", 4),
                                 .up = positive(c, "mlp_up_softcap", 25)};
  const MoEOptions experts{
      .n_experts = size_of_names(c, "n_routed_experts", "num_local_experts", 384, 10'000),
      .top_k = c.size("num_experts_per_tok", 8),
      .score = RouterScore::sigmoid,
      .scale = c.number("route_scale", 8),
      .selection_bias = true};
  set_experts(c, o, experts, size_of_names(c, "moe_intermediate_size", "intermediate_size", 2304),
              [](int64_t) { return true; });
  o.n_logits = c.size("unpadded_vocab_size", 200058);
  if (o.n_logits > o.vocabulary)
    c.refuse(str("\"unpadded_vocab_size\" is ", o.n_logits, " of ", o.vocabulary, " tokens"));
  if (o.n_logits == o.vocabulary) o.n_logits = 0;
  o.soft_cap = positive(c, "final_logit_softcapping", 30);
  c.ignore({"number_of_conv_states"});
  m.names = inkling2_names(has_window, experts.n_experts);
  return m;
}

}  // namespace stretto::nn::pretrained
