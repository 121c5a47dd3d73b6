#include "pretrained/llama_latents.h"

#include <cmath>

#include "core/one_line.h"
#include "nn/attention/latent_attention.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"
#include "pretrained/llama_like.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {
namespace {

// Reads the fields that V2 and V3 have in common, with their defaults in transformers.
LanguageModelConfig deepseek_like(JsonReader& c, int64_t max_length, bool interleaved) {
  LanguageModelConfig m = llama_like(c, {.max_length = max_length, .one_rope = false});
  LanguageModel::Options& o = m.options;
  const MultiHeadAttention::Options& a = o.layer.attention;
  const bool direct = c.is_present("q_lora_rank") && !c.has("q_lora_rank");  // null
  LatentAttentionOptions latent{.n_heads = a.n_heads,
                                .d_latent = c.size("kv_lora_rank", 512),
                                .d_query_latent = direct ? 0 : c.size("q_lora_rank", 1536),
                                .d_content = c.size("qk_nope_head_dim", 128),
                                .d_position = c.size("qk_rope_head_dim", 64),
                                .d_value = c.size("v_head_dim", 128),
                                .bias = a.bias,
                                .dropout = a.dropout};
  if (a.n_kv_heads != a.n_heads)
    c.refuse(str("\"num_key_value_heads\" is ", a.n_kv_heads,
                 ", but latent attention has keys for each of the ", a.n_heads, " heads"));
  if (c.has("head_dim") && a.d_key != latent.d_position)
    c.refuse(str("\"head_dim\" is ", a.d_key, ", not \"qk_rope_head_dim\", ", latent.d_position));
  const int64_t d_key = latent.d_content + latent.d_position;
  if (c.integer("qk_head_dim", d_key) != d_key)
    c.refuse(
        str("\"qk_head_dim\" is not the sum of \"qk_nope_head_dim\" and "
            "\"qk_rope_head_dim\", ",
            d_key));
  RotaryOptions rotation = rotary_options(c, latent.d_position, {.max_length = max_length});
  rotation.pairing = interleaved ? RotaryPairing::interleaved : RotaryPairing::half;
  latent.position = rope(m, rotation);
  latent.scale = rope_score_factor(c) / std::sqrt(double(d_key));
  o.layer.mixer = latent_attention(latent);
  c.require("mlp_bias", false);
  m.names = deepseek_names(o, latent.d_query_latent > 0);
  return m;
}

// Reads the experts of all but the first layers; n, shared, d_hidden and first_dense are defaults.
void read_experts(JsonReader& c, LanguageModelConfig& m, MoEOptions experts, int64_t n,
                  int64_t shared, int64_t d_hidden, int64_t first_dense) {
  experts.n_experts = c.size("n_routed_experts", n);
  experts.scale = c.number("routed_scaling_factor", experts.scale);
  const int64_t d_expert = c.size("moe_intermediate_size", d_hidden);
  experts.d_shared = c.size("n_shared_experts", shared, 1 << 10) * d_expert;
  const int64_t first = c.integer("first_k_dense_replace", first_dense, 0);
  if (c.integer("moe_layer_freq", 1) != 1)
    c.refuse("\"moe_layer_freq\" is not 1, which is not supported");
  if (experts.n_groups < 1 || experts.n_experts % experts.n_groups != 0)
    c.refuse(str("\"n_group\" is ", experts.n_groups, ", not a divisor of ", experts.n_experts));
  set_experts(c, m.options, experts, d_expert, [first](int64_t i) { return i >= first; });
  c.ignore({"aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers", "num_mtp_layers"});
}

}  // namespace

LanguageModelConfig deepseek_v2_config(JsonReader& c) {
  LanguageModelConfig m = deepseek_like(c, 2048, true);
  MoEOptions experts{.top_k = c.size("num_experts_per_tok"), .normalize = false};
  const std::string method = c.text("topk_method", "greedy");
  const int64_t n_groups = c.integer("n_group", 1), top_groups = c.integer("topk_group", 1);
  if (method == "group_limited_greedy") {
    experts.n_groups = n_groups;
    experts.top_groups = top_groups;
  } else if (method != "greedy") {
    c.refuse(str("\"topk_method\" is ", in_quotes(method),
                 "; supported are \"greedy\", \"group_limited_greedy\""));
  }
  c.require("scoring_func", "softmax");
  c.require("norm_topk_prob", false);  // transformers does not use it
  c.require("rope_interleave", true);
  read_experts(c, m, experts, 64, 2, 1407, 0);
  return m;
}

LanguageModelConfig deepseek_v3_config(JsonReader& c) {
  LanguageModelConfig m = deepseek_like(c, 4096, c.flag("rope_interleave", true));
  const MoEOptions experts{.top_k = c.size("num_experts_per_tok", 8),
                           .score = RouterScore::sigmoid,
                           .normalize = c.flag("norm_topk_prob", true),
                           .scale = 2.5,
                           .selection_bias = true,
                           .n_groups = c.integer("n_group", 8),
                           .top_groups = c.integer("topk_group", 4)};
  c.require("scoring_func", "sigmoid");
  c.require("topk_method", "noaux_tc");
  read_experts(c, m, experts, 256, 1, 2048, 3);
  return m;
}

}  // namespace stretto::nn::pretrained
