#include "pretrained/llama_hybrids.h"

#include <algorithm>

#include "nn/attention/gated_linear_attention.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"
#include "pretrained/llama_like.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {
namespace {

using Attention = MultiHeadAttention::Options;

// The sizes of Gated DeltaNet without their fields.
struct DeltaSizes {
  int64_t key_heads = 16;
  int64_t value_heads = 32;
  int64_t d_key = 128;
  int64_t d_value = 128;
};

Attention gated_delta_net(JsonReader& c, const LayerOptions& layer, const DeltaSizes& absent,
                          GatedLinearKernelOptions kernel) {
  Attention a{.d_model = layer.d_model, .bias = false};
  a.n_heads = c.size("linear_num_key_heads", absent.key_heads);
  a.n_value_heads = c.size("linear_num_value_heads", absent.value_heads);
  a.d_key = c.size("linear_key_head_dim", absent.d_key);
  a.d_value = c.size("linear_value_head_dim", absent.d_value);
  if (a.n_value_heads % a.n_heads != 0)
    c.refuse(str("\"linear_num_value_heads\" is ", a.n_value_heads,
                 ", not a multiple of \"linear_num_key_heads\", ", a.n_heads));
  if (layer.feed_forward.activation != Activation::silu)
    c.refuse("\"hidden_act\" must be \"silu\", which the short convolutions have");
  kernel.decay = StateDecay::token;
  kernel.delta = true;
  kernel.taps = c.size("linear_conv_kernel_dim", 4, 1024);
  a.kernel = gated_linear_kernel(kernel);
  return a;
}

// Sets linear attention in the layers of the type "linear_attention". Its name differs from that of
// softmax attention, so that each parameter has one name in the file. Its layers have
// NormPlace::pre, whatever the others have.
void set_linear_layers(LanguageModel::Options& o, const std::vector<bool>& is_linear,
                       const Attention& linear) {
  o.vary_layer = [=](int64_t i, LayerOptions& layer) {
    if (!is_linear[size_t(i)]) return;
    layer.norm = NormPlace::pre;
    layer.mixer = [=](Module& parent, int64_t) {
      return std::make_unique<MultiHeadAttention>(parent, "linear_attention", linear);
    };
  };
}

// Qwen3-Next and its descendants: a gate of softmax attention, RoPE of a quarter of the features, and
// norms whose weights the file has minus 1.
LanguageModelConfig qwen_hybrid(JsonReader& c, LlamaDefaults defaults, bool is_qwen3_5) {
  defaults.max_length = 32768;
  defaults.d_head = 256;
  defaults.one_rope = false;
  LanguageModelConfig m = llama_like(c, defaults);
  LanguageModel::Options& o = m.options;
  Attention& a = o.layer.attention;
  a.qk_norm = Norm::Options{.eps = o.layer.norm_eps, .kind = NormKind::rms};
  a.gate = AttentionGate::per_element;
  a.position = rope(m, rotary_options(c, a.d_key,
                                      {.max_length = defaults.max_length,
                                       .share_field = "partial_rotary_factor",
                                       .share = 0.25,
                                       .multimodal = is_qwen3_5}));
  const int64_t interval = c.size("full_attention_interval", 4);
  const auto is_linear = layers_of_type(c, o.n_layers, {"linear_attention"},
                                        [=](int64_t i) { return (i + 1) % interval != 0; });
  const Attention linear =
      gated_delta_net(c, o.layer, {}, {.norm_eps = o.layer.norm_eps.value_or(1e-6)});
  set_linear_layers(o, is_linear, linear);
  c.require("attn_output_gate", true);
  c.ignore({"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
  if (is_qwen3_5) c.ignore({"mlp_only_layers", "intermediate_size"});
  m.names = is_qwen3_5 ? qwen3_5_names(o, linear) : qwen3_next_names(o, linear);
  return m;
}

// The experts of a hybrid, each layer with a shared one.
MoEOptions shared_experts(JsonReader& c, int64_t top_k) {
  return {.top_k = c.size("num_experts_per_tok", top_k),
          .d_shared = c.size("shared_expert_intermediate_size", 512),
          .shared_gate = true};
}

LanguageModelConfig qwen3_next_config(JsonReader& c) {
  LanguageModelConfig m = qwen_hybrid(c, {.n_kv_heads = 2}, false);
  read_qwen_experts(c, m.options, shared_experts(c, 10), 512, 512);
  return m;
}

LanguageModelConfig qwen3_5_config(JsonReader& c) {
  return qwen_hybrid(c, {.n_kv_heads = 4}, true);
}

LanguageModelConfig qwen3_5_moe_config(JsonReader& c) {
  // Its layers have no network but experts; "intermediate_size" is not used.
  LanguageModelConfig m = qwen_hybrid(c, {.n_kv_heads = 2, .d_hidden = 512}, true);
  MoEOptions experts = shared_experts(c, 8);
  experts.n_experts = c.size("num_experts", 256);
  set_experts(c, m.options, experts, c.size("moe_intermediate_size", 512),
              [](int64_t) { return true; });
  return m;
}

// OLMo Hybrid: layers of OLMo 2, RoPE or none, and layers with norms before the branches and Gated
// DeltaNet, whose state may have negative eigenvalues.
LanguageModelConfig olmo_hybrid_config(JsonReader& c) {
  LanguageModelConfig m = llama_like(c, {.one_rope = false});
  LanguageModel::Options& o = m.options;
  o.layer.norm = NormPlace::output;
  c.require("mlp_bias", false);  // transformers does not read it
  Attention& a = o.layer.attention;
  a.qk_norm =
      Norm::Options{.dim = a.n_heads * a.d_key, .eps = o.layer.norm_eps, .kind = NormKind::rms};
  if (!has_null_theta(c)) a.position = rope(m, rotary_options(c, a.d_key, {.max_length = 65536}));

  const int64_t n = o.n_layers;
  const auto is_linear = layers_of_type(c, n, {"linear_attention"}, [=](int64_t i) {
    return i % 4 != 3 && (n > 3 || i + 1 < n);  // the last one if no other has softmax attention
  });
  const int64_t n_linear = std::count(is_linear.begin(), is_linear.end(), true);
  if (n_linear == 0 || n_linear == n)
    c.refuse(str(n_linear, " of ", n, " layers have linear attention; must be some but not all"));
  DeltaSizes sizes{.key_heads = c.size("linear_num_key_heads", a.n_heads),
                   .value_heads = a.n_heads};
  sizes.d_key = c.size("linear_key_head_dim",
                       std::max<int64_t>(3 * o.layer.d_model / (4 * sizes.key_heads), 1));
  sizes.d_value = 2 * sizes.d_key;
  const Attention linear = gated_delta_net(
      c, o.layer, sizes,
      {.negative_eigenvalues = c.flag("linear_allow_neg_eigval", true), .norm_eps = 1e-5});
  set_linear_layers(o, is_linear, linear);
  c.ignore({"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
            "linear_dt_init_floor"});  // initial values
  m.names = olmo_hybrid_names(o, is_linear, linear);
  return m;
}

}  // namespace

const std::vector<std::pair<std::string, MakeConfig>>& llama_hybrids() {
  static const std::vector<std::pair<std::string, MakeConfig>> all{
      {"qwen3_next", qwen3_next_config},
      {"qwen3_5_text", qwen3_5_config},
      {"qwen3_5_moe_text", qwen3_5_moe_config},
      {"olmo_hybrid", olmo_hybrid_config}};
  return all;
}

}  // namespace stretto::nn::pretrained
