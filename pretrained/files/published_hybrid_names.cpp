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

}  // namespace stretto::nn
