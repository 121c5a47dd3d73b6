#include "pretrained/files/published_names.h"

#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"

namespace stretto::nn {

NameMap transformer_xl_names(const LanguageModel::Options& o, TransformerXLSource source) {
  check(o.adaptive.has_value(), "transformer_xl_names",
        "options without `adaptive`; accepted: those of nn::transformer_xl()");
  const AdaptiveOptions& a = *o.adaptive;
  const bool hugging_face = source == TransformerXLSource::hugging_face;
  const std::string prefix = hugging_face ? "transformer." : "";
  const std::string layer = prefix + "layers.{}.", in_model = "layers.{}.";
  NameMap map;
  map.split(layer + "dec_attn.qkv_net.weight",
            {in_model + "self_attention.q.weight", in_model + "self_attention.k.weight",
             in_model + "self_attention.v.weight"})
      .rename(layer + "dec_attn.r_net.weight", in_model + "self_attention.position.r.weight")
      .rename(layer + "dec_attn.o_net.weight", in_model + "self_attention.out.weight");
  for (const char* kind : {"weight", "bias"})
    map.rename(layer + "dec_attn.layer_norm." + kind, in_model + "norm1." + kind)
        .rename(layer + "pos_ff.layer_norm." + kind, in_model + "norm2." + kind)
        .rename(layer + "pos_ff.CoreNet.0." + kind, in_model + "feed_forward.linear1." + kind)
        .rename(layer + "pos_ff.CoreNet.3." + kind, in_model + "feed_forward.linear2." + kind);

  const std::pair<const char*, const char*> biases[] = {{"r_w_bias", "u"}, {"r_r_bias", "v"}};
  for (const auto& [in_file, name] : biases)
    if (o.tied_biases) {  // Hugging Face's files repeat the shared pair in every layer
      map.rename(prefix + in_file, name).rename(layer + "dec_attn." + in_file, name);
    } else {
      map.rename(layer + "dec_attn." + in_file, in_model + "self_attention.position." + name);
    }

  std::vector<int64_t> shares;  // sizes of the clusters; with div = 1 there is a single one
  int64_t first = 0;
  for (const int64_t end : a.div == 1 ? std::vector<int64_t>{} : a.cutoffs) {
    shares.push_back(end - first);
    first = end;
  }
  shares.push_back(o.vocabulary - first);

  map.drop(prefix + "pos_emb.inv_freq")
      .rename(prefix + "word_emb.emb_layers.{}.weight", "embedding.weight{}")
      .rename(prefix + "word_emb.emb_projs.{}", "embedding.projection{}")
      .rename("crit.out_layers.{}.weight", o.tied ? "embedding.weight{}" : "output.weight{}")
      .join("crit.out_layers.{}.bias", "output.bias", shares);
  for (size_t i = 0; i < o.tied_projections.size(); ++i)
    if (o.tied_projections[i])
      map.rename(str("crit.out_projs.", i), str("embedding.projection", a.div == 1 ? 0 : i));
  map.rename("crit.out_projs.{}", "output.projection{}");
  const auto reversed = [](const Tensor& rows) {
    std::vector<int64_t> order;
    for (int64_t i = rows.dim() == 0 ? 0 : rows.size(0); i-- > 0;) order.push_back(i);
    return order.empty()
               ? rows
               : index_select(rows, 0, tensor(order, {int64_t(order.size())}, rows.device()));
  };
  for (const char* name : {"cluster_weight", "cluster_bias"}) {
    const std::string in_file = str("crit.", name), target = str("output.", name);
    hugging_face ? map.rename(in_file, target)
                 : map.convert(in_file, target, {"in reverse order", reversed, reversed});
  }
  return map;
}

NameMap t5_names(const SequenceToSequence::Options& options) {
  NameMap map;
  map.rename("shared.weight", "source_embedding.weight")
      .rename("lm_head.weight", options.tied ? "source_embedding.weight" : "out.weight")
      .drop("decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight");
  for (const std::string stack : {"encoder.", "decoder."}) {
    const bool decoder = stack == "decoder.";
    const std::string in_model = stack + "layers.{}.";
    const auto part = [&](int i) { return str(stack, "block.{}.layer.", i, "."); };
    const auto attention = [&](const std::string& in_file, const std::string& name) {
      for (const char* x : {"q", "k", "v"})
        map.rename(str(in_file, ".", x, ".weight"), str(in_model, name, ".", x, ".weight"));
      map.rename(in_file + ".o.weight", in_model + name + ".out.weight");
    };
    attention(part(0) + "SelfAttention", "self_attention");
    if (decoder) attention(part(1) + "EncDecAttention", "cross_attention");
    const int last = decoder ? 2 : 1;
    for (int i = 0; i <= last; ++i)
      map.rename(part(i) + "layer_norm.weight", str(in_model, "norm", i + 1, ".weight"));
    map.rename(part(last) + "DenseReluDense.wi.weight", in_model + "feed_forward.linear1.weight")
        .rename(part(last) + "DenseReluDense.wi_0.weight", in_model + "feed_forward.gate.weight")
        .rename(part(last) + "DenseReluDense.wi_1.weight", in_model + "feed_forward.up.weight")
        .rename(part(last) + "DenseReluDense.wo.weight", in_model + "feed_forward.linear2.weight")
        .rename(part(0) + "SelfAttention.relative_attention_bias.weight",
                in_model + "self_attention.position.table")
        .rename(stack + "final_layer_norm.weight", stack + "norm.weight")
        .rename(stack + "embed_tokens.weight", "source_embedding.weight");
  }
  return map;
}

namespace {

constexpr const char* model_layer = "layers.{}.";
using Names = std::initializer_list<std::pair<const char*, const char*>>;

// Renames the weights and biases, if there are any, of the parts of a layer.
void rename_parts(NameMap& map, const std::string& layer, Names names) {
  for (const auto& [in_file, in_model] : names)
    for (const char* kind : {".weight", ".bias"})
      map.rename(layer + in_file + kind, str(model_layer, in_model, kind));
}

// Renames the embedding table and the output matrix, which may be tied.
void rename_ends(NameMap& map, const std::string& table, const std::string& head, bool tied) {
  map.rename(table + ".weight", "embedding.weight");
  for (const char* kind : {".weight", ".bias"})
    map.rename(head + kind, (tied ? "embedding" : "out") + std::string(kind));
}

// For rows in the order [H, 3, D]: q, k and v of a head are adjacent.
void split_by_heads(NameMap& map, const std::string& from, int64_t n_heads) {
  for (const std::string kind : {".weight", ".bias"}) {
    const std::string in_model = str(model_layer, "self_attention.");
    map.split(from + kind, {in_model + "q" + kind, in_model + "k" + kind, in_model + "v" + kind},
              {.groups = n_heads});
  }
}

}  // namespace

NameMap llama_names(const LanguageModel::Options& options) {
  const std::string layer = "[model.]layers.{}.";
  NameMap map;
  rename_ends(map, "[model.]embed_tokens", "lm_head", options.tied);
  rename_parts(map, layer,
               {{"input_layernorm", "norm1"},
                {"post_attention_layernorm", "norm2"},
                {"self_attn.q_proj", "self_attention.q"},
                {"self_attn.k_proj", "self_attention.k"},
                {"self_attn.v_proj", "self_attention.v"},
                {"self_attn.o_proj", "self_attention.out"},
                {"self_attn.q_norm", "self_attention.q_norm"},
                {"self_attn.k_norm", "self_attention.k_norm"},
                {"mlp.gate_proj", "feed_forward.gate"},
                {"mlp.up_proj", "feed_forward.up"},
                {"mlp.down_proj", "feed_forward.linear2"},
                {"mlp.gate", "feed_forward.router"},
                {"mlp.experts.{}.gate_proj", "feed_forward.experts.{}.gate"},
                {"mlp.experts.{}.up_proj", "feed_forward.experts.{}.up"},
                {"mlp.experts.{}.down_proj", "feed_forward.experts.{}.linear2"},
                {"mlp.shared_expert.gate_proj", "feed_forward.shared.gate"},
                {"mlp.shared_expert.up_proj", "feed_forward.shared.up"},
                {"mlp.shared_expert.down_proj", "feed_forward.shared.linear2"},
                {"mlp.shared_expert_gate", "feed_forward.shared_gate"}});
  return map.rename("[model.]norm.weight", "norm.weight").drop("*rotary_emb.inv_freq");
}

NameMap mixtral_names(const LanguageModel::Options& options) {
  NameMap experts;
  rename_parts(experts, "[model.]layers.{}.block_sparse_moe.",
               {{"gate", "feed_forward.router"},
                {"experts.{}.w1", "feed_forward.experts.{}.gate"},
                {"experts.{}.w3", "feed_forward.experts.{}.up"},
                {"experts.{}.w2", "feed_forward.experts.{}.linear2"}});
  return llama_names(options).prefer(experts);
}

NameMap phi3_names(const LanguageModel::Options& options) {
  const auto& a = options.layer.attention;
  const std::string layer = "[model.]layers.{}.";
  NameMap joined;
  joined.split(layer + "self_attn.qkv_proj.weight",
               {{"layers.{}.self_attention.q.weight", a.n_heads},
                {"layers.{}.self_attention.k.weight", a.n_kv_heads},
                {"layers.{}.self_attention.v.weight", a.n_kv_heads}});
  joined.split(layer + "mlp.gate_up_proj.weight",
               {"layers.{}.feed_forward.gate.weight", "layers.{}.feed_forward.up.weight"});
  return llama_names(options).prefer(joined);
}

Conversion plus_one() {
  // In f64, so that loading rounds the sum once, to the model's dtype. A file has at least f32, since
  // w has more bits than bf16 holds.
  return {"plus 1", [](const Tensor& w) { return w.to(f64) + 1; },
          [](const Tensor& w) { return (w.to(f64) - 1).to(w.dtype() == f64 ? f64 : f32); }};
}

NameMap deepseek_names(const LanguageModel::Options& options, bool query_latents) {
  const std::string layer = "[model.]layers.{}.";
  NameMap latents;
  rename_parts(latents, layer,
               {{"self_attn.q_a_proj", "mixer.q_down"},
                {"self_attn.q_a_layernorm", "mixer.q_norm"},
                {query_latents ? "self_attn.q_b_proj" : "self_attn.q_proj", "mixer.q"},
                {"self_attn.kv_a_proj_with_mqa", "mixer.kv_down"},
                {"self_attn.kv_a_layernorm", "mixer.kv_norm"},
                {"self_attn.kv_b_proj", "mixer.kv_up"},
                {"self_attn.o_proj", "mixer.out"},
                {"mlp.shared_experts.gate_proj", "feed_forward.shared.gate"},
                {"mlp.shared_experts.up_proj", "feed_forward.shared.up"},
                {"mlp.shared_experts.down_proj", "feed_forward.shared.linear2"}});
  latents.rename(layer + "mlp.gate.e_score_correction_bias",
                 str(model_layer, "feed_forward.selection_bias"));
  latents.drop(str("[model.]layers.", options.n_layers, ".*"));  // multi-token prediction
  return llama_names(options).prefer(latents);
}

NameMap gemma_names(const LanguageModel::Options& options) {
  NameMap norms;
  for (const auto& [in_file, in_model] : Names{{"input_layernorm", "norm1"},
                                               {"post_attention_layernorm", "norm1_out"},
                                               {"pre_feedforward_layernorm", "norm2"},
                                               {"post_feedforward_layernorm", "norm2_out"},
                                               {"self_attn.q_norm", "self_attention.q_norm"},
                                               {"self_attn.k_norm", "self_attention.k_norm"}})
    norms.convert(str("[model.]layers.{}.", in_file, ".weight"),
                  str(model_layer, in_model, ".weight"), plus_one());
  norms.convert("[model.]norm.weight", "norm.weight", plus_one());
  return llama_names(options).prefer(norms);
}

NameMap olmo2_names(const LanguageModel::Options& options) {
  NameMap norms;
  rename_parts(norms, "[model.]layers.{}.",
               {{"post_attention_layernorm", "norm1"}, {"post_feedforward_layernorm", "norm2"}});
  return llama_names(options).prefer(norms);
}

namespace {

// From experts side by side, [E, in, out] or biases [E, out], to their rows one below the other,
// [E·out, in] or [E·out]. With two `parts` the outputs of an expert alternate between them in the
// file, and the second part follows the first in the rows.
Conversion expert_rows(int64_t n_experts, int64_t parts) {
  const auto there = [=](const Tensor& x) {
    check((x.dim() == 2 || x.dim() == 3) && x.size(0) == n_experts && x.size(-1) % parts == 0,
          "gpt_oss_names", "experts ", x, "; must be [", n_experts, ", in, out] or [", n_experts,
          ", out], out a multiple of ", parts);
    const bool bias = x.dim() == 2;
    const Tensor rows = bias ? x.unsqueeze(2) : x.transpose(1, 2);
    const Tensor y = rows.reshape({n_experts, -1, parts, rows.size(2)}).transpose(1, 2);
    return bias ? y.flatten() : y.reshape({-1, rows.size(2)});
  };
  const auto back = [=](const Tensor& x) {
    const int64_t d = x.dim() == 1 ? 1 : x.size(1);
    const Tensor rows =
        x.reshape({n_experts, parts, -1, d}).transpose(1, 2).reshape({n_experts, -1, d});
    return x.dim() == 1 ? rows.squeeze(2) : rows.transpose(1, 2);
  };
  return {"one row per output", there, back, true};
}

}  // namespace

NameMap gpt_oss_names(const LanguageModel::Options& options, int64_t n_experts) {
  const std::string in_file = "[model.]layers.{}.mlp.";
  NameMap map;
  for (const auto& [kind, end] : Names{{".weight", ""}, {".bias", "_bias"}}) {
    std::vector<NameMap::Part> gate_and_up, down;
    for (int64_t e = 0; e < n_experts; ++e) {
      const std::string expert = str(model_layer, "feed_forward.experts.", e, ".");
      for (const char* part : {"gate", "up"}) gate_and_up.push_back(str(expert, part, kind));
      down.push_back(str(expert, "linear2", kind));
    }
    map.split(str(in_file, "experts.gate_up_proj", end), gate_and_up,
              {.first = expert_rows(n_experts, 2)})
        .split(str(in_file, "experts.down_proj", end), down, {.first = expert_rows(n_experts, 1)})
        .rename(str(in_file, "router", kind), str(model_layer, "feed_forward.router", kind));
  }
  map.rename("[model.]layers.{}.self_attn.sinks", str(model_layer, "self_attention.sinks"));
  return llama_names(options).prefer(map);
}

Conversion gguf_rotary_rows(int64_t n_heads) {
  const auto exchanged = [n_heads](const Tensor& x, bool there) {
    check(x.dim() >= 1 && x.size(0) % (2 * n_heads) == 0, "gguf_rotary_rows",
          "the number of rows must be a multiple of ", 2 * n_heads, ", for ", n_heads, " heads");
    const int64_t half = x.size(0) / n_heads / 2;
    return x.reshape({n_heads, there ? half : 2, there ? 2 : half, -1})
        .transpose(1, 2)
        .reshape(x.shape());
  };
  return {.name = "rows from pairs to halves",
          .there = [=](const Tensor& x) { return exchanged(x, true); },
          .back = [=](const Tensor& x) { return exchanged(x, false); },
          .moves_only = true};
}

NameMap gguf_llama_names(const LanguageModel::Options& options, GgufRows rows) {
  const std::string layer = "blk.{}.";
  NameMap map;
  rename_ends(map, "token_embd", "output", options.tied);
  if (rows == GgufRows::pairs) {
    const auto& attention = options.layer.attention;
    const int64_t n_heads = attention.n_heads;
    const int64_t n_kv_heads = attention.n_kv_heads > 0 ? attention.n_kv_heads : n_heads;
    for (const std::string kind : {".weight", ".bias"})
      map.convert(layer + "attn_q" + kind, str(model_layer, "self_attention.q", kind),
                  gguf_rotary_rows(n_heads))
          .convert(layer + "attn_k" + kind, str(model_layer, "self_attention.k", kind),
                   gguf_rotary_rows(n_kv_heads));
  }
  rename_parts(map, layer,
               {{"attn_norm", "norm1"},
                {"ffn_norm", "norm2"},
                {"attn_q", "self_attention.q"},
                {"attn_k", "self_attention.k"},
                {"attn_v", "self_attention.v"},
                {"attn_output", "self_attention.out"},
                {"attn_q_norm", "self_attention.q_norm"},
                {"attn_k_norm", "self_attention.k_norm"},
                {"ffn_gate", "feed_forward.gate"},
                {"ffn_up", "feed_forward.up"},
                {"ffn_down", "feed_forward.linear2"}});
  return map.rename("output_norm.weight", "norm.weight");
}

NameMap gpt2_names(const LanguageModel::Options& options) {
  const std::string layer = "[transformer.]h.{}.", in_model = model_layer;
  const std::string attention = in_model + "self_attention.";
  NameMap map;
  rename_ends(map, "[transformer.]wte", "lm_head", options.tied);
  rename_parts(map, layer, {{"ln_1", "norm1"}, {"ln_2", "norm2"}});
  map.rename("[transformer.]wpe.weight", "embedding.positions.table")
      .drop(layer + "attn.bias")
      .drop(layer + "attn.masked_bias");
  for (const std::string kind : {"weight", "bias"}) {
    const bool weight = kind == "weight";
    map.split(layer + "attn.c_attn." + kind,
              {attention + "q." + kind, attention + "k." + kind, attention + "v." + kind},
              {.first = weight ? transposed() : Conversion{}})
        .rename("[transformer.]ln_f." + kind, "norm." + kind);
    for (const auto& [in_file, name] : Names{{"attn.c_proj.", "self_attention.out."},
                                             {"mlp.c_fc.", "feed_forward.linear1."},
                                             {"mlp.c_proj.", "feed_forward.linear2."}}) {
      const std::string from = layer + in_file + kind, to = in_model + name + kind;
      weight ? map.convert(from, to, transposed()) : map.rename(from, to);
    }
  }
  return map;
}

NameMap gpt_neox_names(const LanguageModel::Options& options) {
  const std::string layer = "[gpt_neox.]layers.{}.";
  NameMap map;
  rename_ends(map, "[gpt_neox.]embed_in", "embed_out", options.tied);
  split_by_heads(map, layer + "attention.query_key_value", options.layer.attention.n_heads);
  rename_parts(map, layer,
               {{"input_layernorm", "norm1"},
                {"post_attention_layernorm", "norm2"},
                {"attention.dense", "self_attention.out"},
                {"mlp.dense_h_to_4h", "feed_forward.linear1"},
                {"mlp.dense_4h_to_h", "feed_forward.linear2"}});
  for (const std::string kind : {"weight", "bias"})
    map.rename("[gpt_neox.]final_layer_norm." + kind, "norm." + kind);
  return map.drop(layer + "attention.bias")
      .drop(layer + "attention.masked_bias")
      .drop(layer + "attention.rotary_emb.inv_freq");
}

NameMap gptj_names(const LanguageModel::Options& options) {
  const std::string layer = "[transformer.]h.{}.";
  NameMap map;
  rename_ends(map, "[transformer.]wte", "lm_head", options.tied);
  rename_parts(map, layer,
               {{"ln_1", "norm1"},
                {"attn.q_proj", "self_attention.q"},
                {"attn.k_proj", "self_attention.k"},
                {"attn.v_proj", "self_attention.v"},
                {"attn.out_proj", "self_attention.out"},
                {"mlp.fc_in", "feed_forward.linear1"},
                {"mlp.fc_out", "feed_forward.linear2"}});
  for (const std::string kind : {"weight", "bias"})
    map.rename("[transformer.]ln_f." + kind, "norm." + kind);
  return map.drop(layer + "attn.bias")
      .drop(layer + "attn.masked_bias")
      .drop(layer + "attn.embed_positions");
}

NameMap bloom_names(const LanguageModel::Options& options) {
  const std::string layer = "[transformer.]h.{}.";
  NameMap map;
  rename_ends(map, "[transformer.]word_embeddings", "lm_head", options.tied);
  split_by_heads(map, layer + "self_attention.query_key_value", options.layer.attention.n_heads);
  rename_parts(map, layer,
               {{"input_layernorm", "norm1"},
                {"post_attention_layernorm", "norm2"},
                {"self_attention.dense", "self_attention.out"},
                {"mlp.dense_h_to_4h", "feed_forward.linear1"},
                {"mlp.dense_4h_to_h", "feed_forward.linear2"}});
  for (const std::string kind : {"weight", "bias"})
    map.rename("[transformer.]word_embeddings_layernorm." + kind,
               "embedding.positions.norm." + kind)
        .rename("[transformer.]ln_f." + kind, "norm." + kind);
  return map;
}

NameMap torch_transformer_names() {
  const std::string layer = "*layers.{}.";
  NameMap map;
  for (const auto& [in_file, name] :
       Names{{"self_attn.", "self_attention."}, {"multihead_attn.", "cross_attention."}}) {
    for (const char* kind : {"weight", "bias"}) {
      const auto part = [&, prefix = str(layer, name)](const char* which) {
        return str(prefix, which, ".", kind);
      };
      map.split(str(layer, in_file, "in_proj_", kind), {part("q"), part("k"), part("v")})
          .rename(str(layer, in_file, "out_proj.", kind), part("out"));
    }
    for (const char* which : {"q", "k", "v"})  // with kdim or vdim other than embed_dim
      map.rename(str(layer, in_file, which, "_proj_weight"), str(layer, name, which, ".weight"));
  }
  for (const char* kind : {"weight", "bias"})
    for (const char* which : {"linear1.", "linear2."})
      map.rename(str(layer, which, kind), str(layer, "feed_forward.", which, kind));
  return map;
}

NameMap gwinndr_names() {
  const std::string layer = "transformer.encoder.layers.{}.", in_model = "layers.{}.";
  const std::string attention = layer + "self_attn.",
                    model_attention = in_model + "self_attention.";
  NameMap map;
  map.drop("positional_encoding.pe")
      .convert(attention + "Er", model_attention + "position.table",
               {"with one more dimension", [](const Tensor& rows) { return rows.unsqueeze(0); },
                [](const Tensor& rows) { return rows.squeeze(0); }});
  for (const std::string kind : {"weight", "bias"}) {
    map.split(attention + "in_proj_" + kind,
              {model_attention + "q." + kind, model_attention + "k." + kind,
               model_attention + "v." + kind})
        .rename(attention + "out_proj." + kind, model_attention + "out." + kind)
        .rename("transformer.encoder.norm." + kind, "norm." + kind)
        .rename("Wout." + kind, "out." + kind);
    for (const char* n : {"1", "2"})
      map.rename(layer + "linear" + n + "." + kind,
                 in_model + "feed_forward.linear" + n + "." + kind)
          .rename(layer + "norm" + n + "." + kind, in_model + "norm" + n + "." + kind);
  }
  return map;
}

LanguageModel::Options gwinndr_options(int64_t vocabulary, int64_t max_length) {
  return {.vocabulary = vocabulary,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = 8,
                                  .position = music_relative({.max_length = max_length,
                                                              .shared_by_heads = true,
                                                              .out_of_range = OutOfRange::error})},
                    .feed_forward = {.d_hidden = 1024},
                    .norm = NormPlace::post,
                    .dropout = 0.1},
          .input = {.scale = false, .sinusoid = Sinusoid::interleaved},
          .final_norm = true,
          .output_bias = true};
}

}  // namespace stretto::nn
