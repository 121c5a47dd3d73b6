// The names of models whose layers have softmax attention or linear attention.
#include "pretrained/files/published_names.h"

namespace stretto::nn {
namespace {

constexpr const char *in_file = "[model.]layers.{}.", *linear = "[model.]layers.{}.linear_attn.",
                     *in_model = "layers.{}.", *delta = "layers.{}.linear_attention.";

// The parameters of Gated DeltaNet that all models have under the same names.
NameMap delta_names() {
  NameMap map;
  return map
      .convert(str(linear, "conv1d.weight"), str(delta, "kernel.convolution.weight"),
               {.name = "without dimension 1",
                .there = [](const Tensor& w) { return w.squeeze(1); },
                .back = [](const Tensor& w) { return w.unsqueeze(1); },
                .moves_only = true})
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

}  // namespace stretto::nn
