// The names of models whose layers have linear attention or short convolutions.
#include "ops/view.h"
#include "pretrained/files/published_names.h"

namespace stretto::nn {
namespace {

constexpr const char *in_file = "[model.]layers.{}.", *linear = "[model.]layers.{}.linear_attn.",
                     *in_model = "layers.{}.", *delta = "layers.{}.linear_attention.";

// The filters of a Conv1d with as many groups as features, [C, 1, T].
Conversion filters() {
  return {.name = "without dimension 1",
          .there = [](const Tensor& w) { return w.squeeze(1); },
          .back = [](const Tensor& w) { return w.unsqueeze(1); },
          .moves_only = true};
}

// The parameters of Gated DeltaNet that all models have under the same names.
NameMap delta_names() {
  NameMap map;
  return map
      .convert(str(linear, "conv1d.weight"), str(delta, "kernel.convolution.weight"), filters())
      .rename(str(linear, "A_log"), str(delta, "kernel.decay_rate"))
      .rename(str(linear, "dt_bias"), str(delta, "kernel.decay_bias"));
}

// q_proj has the rows of queries and gate in the order [H, 2, D].
NameMap qwen_names(const LanguageModel::Options& o) {
  NameMap map = delta_names();
  map.rename(str(linear, "norm.weight"), str(delta, "kernel.norm.weight"))
      .rename(str(linear, "out_proj.weight"), str(delta, "out.weight"))
      .drop("mtp.*");
  for (const std::string kind : {".weight", ".bias"})
    map.split(str(in_file, "self_attn.q_proj", kind),
              {str(in_model, "self_attention.q", kind), str(in_model, "self_attention.gate", kind)},
              {.groups = o.layer.attention.n_heads});
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"input_layernorm", "norm1"},
                                 {"post_attention_layernorm", "norm2"},
                                 {"self_attn.q_norm", "self_attention.q_norm"},
                                 {"self_attn.k_norm", "self_attention.k_norm"}})
    map.convert(str(in_file, from, ".weight"), str(in_model, to, ".weight"), plus_one());
  return map.convert("[model.]norm.weight", "norm.weight", plus_one());
}

}  // namespace

NameMap qwen3_next_names(const LanguageModel::Options& o, const MultiHeadAttention::Options& l) {
  const int64_t group = l.n_value_heads / l.n_heads;  // value heads of a key head
  NameMap map = qwen_names(o);
  map.split(str(linear, "in_proj_qkvz.weight"),
            {{str(delta, "q.weight"), l.d_key},
             {str(delta, "k.weight"), l.d_key},
             {str(delta, "v.weight"), group * l.d_value},
             {str(delta, "kernel.gate.weight"), group * l.d_value}},
            {.groups = l.n_heads})
      .split(str(linear, "in_proj_ba.weight"),
             {str(delta, "kernel.beta.weight"), str(delta, "kernel.decay.weight")},
             {.groups = l.n_heads});
  return llama_names(o).prefer(map);
}

NameMap qwen3_5_names(const LanguageModel::Options& o, const MultiHeadAttention::Options& l) {
  NameMap map = qwen_names(o);
  map.split(str(linear, "in_proj_qkv.weight"),
            {{str(delta, "q.weight"), l.n_heads * l.d_key},
             {str(delta, "k.weight"), l.n_heads * l.d_key},
             {str(delta, "v.weight"), l.n_value_heads * l.d_value}})
      .rename(str(linear, "in_proj_z.weight"), str(delta, "kernel.gate.weight"))
      .rename(str(linear, "in_proj_b.weight"), str(delta, "kernel.beta.weight"))
      .rename(str(linear, "in_proj_a.weight"), str(delta, "kernel.decay.weight"));
  return llama_names(o).prefer(map);
}

NameMap olmo_hybrid_names(const LanguageModel::Options& o, const std::vector<bool>& is_linear,
                          const MultiHeadAttention::Options& l) {
  const int64_t keys = l.n_heads * l.d_key, values = l.n_value_heads * l.d_value;
  NameMap map;
  map.join_named({str(linear, "q_conv1d.weight"), str(linear, "k_conv1d.weight"),
                  str(linear, "v_conv1d.weight")},
                 str(delta, "kernel.convolution.weight"), {keys, keys, values}, filters());
  for (const auto& [from, to] : {std::pair<const char*, const char*>{"q_proj", "q"},
                                 {"k_proj", "k"},
                                 {"v_proj", "v"},
                                 {"o_proj", "out"},
                                 {"g_proj", "kernel.gate"},
                                 {"b_proj", "kernel.beta"},
                                 {"a_proj", "kernel.decay"},
                                 {"o_norm", "kernel.norm"}})
    map.rename(str(linear, from, ".weight"), str(delta, to, ".weight"));
  for (size_t i = 0; i < is_linear.size(); ++i) {
    const auto norm = [&](const char* from, const char* to) {
      map.rename(str("[model.]layers.", i, ".", from, ".weight"),
                 str("layers.", i, ".", to, ".weight"));
    };
    if (is_linear[i]) {
      norm("attention_layer_norm", "norm1");
      norm("feedforward_layer_norm", "norm2");
    } else {
      norm("post_attention_layernorm", "norm1");
      norm("feedforward_layer_norm", "norm1");  // as transformers saves it
      norm("post_feedforward_layernorm", "norm2");
    }
  }
  return llama_names(o).prefer(delta_names().prefer(map));  // delta_names() has one convolution
}

namespace {

// From matrices side by side, [E, out, in], to their rows one below the other.
Conversion rows_of_experts(int64_t n) {
  return {.name = "rows of all experts",
          .there = [](const Tensor& w) { return w.flatten(0, 1); },
          .back =
              [n](const Tensor& w) {
                return w.reshape({n, -1, w.size(1)});
              },
          .moves_only = true};
}

// A bank [P, R] of the distances 0 … R − 1, as a table [1, R, P] whose last row is distance 0.
Conversion bank_of_distances() {
  return {.name = "transposed in reverse order",
          .there = [](const Tensor& w) { return flip(w.transpose(0, 1), 0).unsqueeze(0); },
          .back = [](const Tensor& w) { return flip(w.squeeze(0), 0).transpose(0, 1); },
          .moves_only = true};
}

}  // namespace

NameMap inkling_names(const LanguageModel::Options& o, const std::vector<bool>& has_experts,
                      const MoEOptions& experts) {
  const auto expert = [](int64_t e, const char* part) {
    return str(in_model, "feed_forward.experts.", e, ".", part, ".weight");
  };
  const int64_t n = experts.n_experts, all = n + experts.n_always;
  NameMap map;
  std::vector<NameMap::Part> gate_and_up, down;
  for (int64_t e = 0; e < n; ++e) {
    for (const char* part : {"gate", "up"}) gate_and_up.push_back(expert(e, part));
    down.push_back(expert(e, "linear2"));
  }
  map.split(str(in_file, "mlp.experts.gate_up_proj"), gate_and_up, {.first = rows_of_experts(n)})
      .split(str(in_file, "mlp.experts.down_proj"), down, {.first = rows_of_experts(n)});
  for (const auto& [from, part] : {std::pair<const char*, const char*>{"gate_proj", "gate"},
                                   {"up_proj", "up"},
                                   {"down_proj", "linear2"}}) {
    std::vector<NameMap::Part> parts;
    for (int64_t e = n; e < all; ++e) parts.push_back(expert(e, part));
    map.split(str(in_file, "mlp.shared_experts.", from), parts,
              {.first = rows_of_experts(all - n)});
  }
  for (const auto& [from, to] :
       {std::pair<const char*, const char*>{"self_attn.k_sconv", "self_attention.k_convolution"},
        {"self_attn.v_sconv", "self_attention.v_convolution"},
        {"attn_sconv", "mixer_convolution"},
        {"mlp_sconv", "network_convolution"}})
    map.convert(str(in_file, from, ".conv1d.weight"), str(in_model, to, ".weight"), filters());
  for (size_t i = 0; i < has_experts.size(); ++i)
    map.rename(str("[model.]layers.", i, has_experts[i] ? ".mlp.gate" : ".mlp", ".global_scale"),
               str("layers.", i, ".network_scale"));
  map.rename(str(in_file, "self_attn.r_proj.weight"),
             str(in_model, "self_attention.position.r.weight"))
      .convert(str(in_file, "self_attn.rel_logits_proj.proj"),
               str(in_model, "self_attention.position.table"), bank_of_distances())
      .rename(str(in_file, "mlp.gate.e_score_correction_bias"),
              str(in_model, "feed_forward.selection_bias"))
      .rename("[model.]embed_tokens.embed_norm.weight", "embedding.positions.norm.weight")
      .drop("[model.]mtp.*");
  return llama_names(o).prefer(map);
}

namespace {

using Names = std::vector<std::pair<std::string, std::string>>;

// Gate and up in turn, [E, 2F, in], to the rows of gate and of up of each expert.
Conversion interleaved_experts(int64_t n) {
  return {.name = "gate and up of all experts",
          .there =
              [n](const Tensor& w) {
                return w.reshape({n, -1, 2, w.size(2)}).transpose(1, 2).reshape({-1, w.size(2)});
              },
          .back =
              [n](const Tensor& w) {
                return w.reshape({n, 2, -1, w.size(1)}).transpose(1, 2).reshape({n, -1, w.size(1)});
              },
          .moves_only = true};
}

// Taps in the order of distance, [T, C], as filters [C, T], which end with the last position.
Conversion taps_of_distances() {
  const auto there = [](const Tensor& w) { return flip(w, 0).transpose(0, 1); };
  return {.name = "transposed in reverse order",
          .there = there,
          .back = [](const Tensor& w) { return flip(w.transpose(0, 1), 0); },
          .moves_only = true};
}

// The linear layers of attention, as files and as modules of transformers name them.
constexpr const char* inkling2_linears[][3]{
    {"wq_du.weight", "q_proj.linear", "q"},
    {"wk_dv.weight", "k_proj.linear", "k"},
    {"wv_dv.weight", "v_proj.linear", "v"},
    {"wo_ud.weight", "o_proj.linear", "out"},
    {"gate_attn.weight", "o_proj.gate_proj", "gate"},
    {"attn_sink_proj.weight", "sink_proj", "query_sinks"},
    {"wr_du.weight", "relative_position_bias.linear", "position.r"},
    {"k_sconv.weight_proj", "k_proj.sconv.weight_proj", "k_convolution.filters"},
    {"v_sconv.weight_proj", "v_proj.sconv.weight_proj", "v_convolution.filters"}};

}  // namespace

NameMap inkling2_names(const std::vector<bool>& has_window, int64_t n_experts) {
  const std::string layer = "model.llm.layers.{}.", attention = str(in_model, "self_attention."),
                    depth = "model.llm.attn_res.";
  std::vector<NameMap::Part> gate_and_up, down;
  for (int64_t e = 0; e < n_experts; ++e) {
    const std::string expert = str(in_model, "feed_forward.experts.", e, '.');
    for (const char* part : {"gate", "up"}) gate_and_up.push_back(str(expert, part, ".weight"));
    down.push_back(str(expert, "linear2.weight"));
  }
  NameMap map, modules;
  map.split(layer + "mlp.experts.w13_weight", gate_and_up,
            {.first = interleaved_experts(n_experts)})
      .split(layer + "mlp.experts.w2_weight", down, {.first = rows_of_experts(n_experts)})
      .convert(layer + "attn.rel_logits_proj.proj", attention + "position.table",
               bank_of_distances())
      .convert(layer + "attn_sconv.weight", str(in_model, "mixer_convolution.weight"), filters())
      .convert(layer + "mlp_sconv.weight", str(in_model, "network_convolution.weight"), filters());
  for (const auto& [file, module, part] : inkling2_linears) {
    map.rename(str(layer, "attn.", file), str(attention, part, ".weight"));
    modules.rename(str("model.layers.{}.self_attn.", module, ".weight"),
                   str(attention, part, ".weight"));
  }
  for (size_t i = 0; i < has_window.size(); ++i) {
    const std::string from = str("model.llm.layers.", i, '.'), to = str("layers.", i, '.');
    map.rename(from + (has_window[i] ? "attn_norm.weight" : "q_input_norm.weight"),
               to + "norm1.weight");
    if (i > 0) map.rename(str(depth, "attn_queries.", i - 1), to + "mixer_query");
    for (const std::string x : {"k", "v"})
      map.convert(str(from, "attn.", x, has_window[i] ? "_sconv.weight" : "_sconv.static_w"),
                  str(to, "self_attention.", x, "_convolution.weight"),
                  has_window[i] ? filters() : taps_of_distances());
  }
  for (const auto& [from, to] :
       Names{{layer + "attn.q_l2_clip.scale", attention + "q_factors"},
             {layer + "attn.rel_l2_clip.scale", attention + "position.factors"},
             {layer + "k_input_norm.weight", "layers.{}.k_norm1.weight"},
             {layer + "v_input_norm.weight", "layers.{}.v_norm1.weight"},
             {layer + "mlp_norm.weight", "layers.{}.norm2.weight"},
             {layer + "mlp.gate.weight", "layers.{}.feed_forward.router.weight"},
             {layer + "mlp.gate.bias", "layers.{}.feed_forward.selection_bias"},
             {depth + "mlp_queries.{}", "layers.{}.network_query"},
             {depth + "output_query", "output_query"},
             {"model.llm.embed.weight", "embedding.weight"},
             {"model.llm.embed_norm.weight", "embedding.positions.norm.weight"},
             {"model.llm.norm.weight", "norm.weight"},
             {"model.llm.unembed.weight", "out.weight"}})
    map.rename(from, to);
  modules.rename("lm_head.weight", "out.weight");
  return map.set_modules(modules);
}

}  // namespace stretto::nn
