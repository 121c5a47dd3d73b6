#include "ops/indexing.h"
#include "pretrained/files/published_names.h"

namespace stretto::nn {
namespace {

using Names = std::initializer_list<std::pair<const char*, const char*>>;

// Renames the weights and biases of parts, which files of TensorFlow call gamma and beta in norms.
void rename_linears_and_norms(NameMap& map, const std::string& in_file, const std::string& in_model,
                              Names names) {
  for (const auto& [from, to] : names)
    for (const auto& [kind, name] : Names{
             {".weight", ".weight"}, {".bias", ".bias"}, {".gamma", ".weight"}, {".beta", ".bias"}})
      map.rename(str(in_file, from, kind), str(in_model, to, name));
}

// The names that BERT and DeBERTa have in common, below an optional prefix.
NameMap bert_like_names(const std::string& prefix) {
  const std::string input = prefix + "embeddings.";
  NameMap map;
  map.rename(input + "word_embeddings.weight", "embedding.weight")
      .rename(input + "token_type_embeddings.weight", "token_types.weight")
      .drop(input + "position_ids");
  for (const char* head : {"cls.*", "lm_head.*", "classifier.*", "qa_outputs.*"}) map.drop(head);
  rename_linears_and_norms(map, input, "embedding.positions.", {{"LayerNorm", "norm"}});
  rename_linears_and_norms(map, prefix + "encoder.layer.{}.", "encoder.layers.{}.",
                           {{"attention.output.dense", "self_attention.out"},
                            {"attention.output.LayerNorm", "norm1"},
                            {"intermediate.dense", "feed_forward.linear1"},
                            {"output.dense", "feed_forward.linear2"},
                            {"output.LayerNorm", "norm2"}});
  return map;
}

// Between the weights of a convolution [out, in, positions] and those of a Linear
// [out, positions · in].
Conversion window_rows(int64_t n_positions) {
  const auto there = [](const Tensor& x) {
    check(x.dim() == 3, "deberta_names", "the convolution's weight has ", x.dim(),
          " dimensions; expected 3");
    return x.transpose(1, 2).reshape({x.size(0), -1});
  };
  const auto back = [n_positions](const Tensor& x) {
    return x.reshape({x.size(0), n_positions, -1}).transpose(1, 2);
  };
  return {"one row per output", there, back, true};
}

}  // namespace

NameMap bert_names(const std::string& model) {
  const std::string prefix = "[" + model + ".]";
  NameMap map = bert_like_names(prefix);
  map.rename(prefix + "embeddings.position_embeddings.weight", "embedding.positions.table");
  rename_linears_and_norms(map, prefix, "", {{"pooler.dense", "pooler"}});
  rename_linears_and_norms(map, prefix + "encoder.layer.{}.attention.self.",
                           "encoder.layers.{}.self_attention.",
                           {{"query", "q"}, {"key", "k"}, {"value", "v"}});
  return map;
}

NameMap mpnet_names() {
  const std::string prefix = "[mpnet.]";
  NameMap attention;
  rename_linears_and_norms(attention, prefix + "encoder.layer.{}.attention.", "encoder.layers.{}.",
                           {{"attn.q", "self_attention.q"},
                            {"attn.k", "self_attention.k"},
                            {"attn.v", "self_attention.v"},
                            {"attn.o", "self_attention.out"},
                            {"LayerNorm", "norm1"}});
  attention.rename(prefix + "encoder.relative_attention_bias.weight",
                   "encoder.layers.0.self_attention.position.table");
  return bert_names("mpnet").prefer(attention);
}

NameMap modernbert_names() {
  const std::string prefix = "[model.]", layer = prefix + "layers.{}.",
                    in_model = "encoder.layers.{}.";
  NameMap map;
  map.rename(prefix + "embeddings.tok_embeddings.weight", "embedding.weight");
  rename_linears_and_norms(
      map, prefix, "",
      {{"embeddings.norm", "embedding.positions.norm"}, {"final_norm", "encoder.norm"}});
  rename_linears_and_norms(map, layer, in_model,
                           {{"attn_norm", "norm1"},
                            {"attn.Wo", "self_attention.out"},
                            {"mlp_norm", "norm2"},
                            {"mlp.Wo", "feed_forward.linear2"}});
  for (const char* kind : {".weight", ".bias"}) {
    const auto part = [&](const char* name) { return str(in_model, name, kind); };
    map.split(str(layer, "attn.Wqkv", kind),
              {part("self_attention.q"), part("self_attention.k"), part("self_attention.v")})
        .split(str(layer, "mlp.Wi", kind), {part("feed_forward.gate"), part("feed_forward.up")});
  }
  for (const char* head : {"head.*", "decoder.*", "classifier.*"}) map.drop(head);
  return map;
}

NameMap deberta_names(const Bert::Options& options) {
  const std::string prefix = "[deberta.]";
  NameMap map = bert_like_names(prefix);
  const std::string positions = prefix + "embeddings.position_embeddings.weight";
  options.learned_positions ? map.rename(positions, "embedding.positions.table")
                            : map.drop(positions);
  map.rename(prefix + "encoder.rel_embeddings.weight", "relative");
  rename_linears_and_norms(
      map, prefix + "encoder.", "",
      {{"LayerNorm", "relative_norm"}, {"conv.LayerNorm", "convolution.norm"}});
  map.convert(prefix + "encoder.conv.conv.weight", "convolution.window.weight",
              window_rows(options.kernel_size))
      .rename(prefix + "encoder.conv.conv.bias", "convolution.window.bias");
  rename_linears_and_norms(map, prefix + "encoder.layer.{}.attention.self.",
                           "encoder.layers.{}.self_attention.",
                           {{"query_proj", "q"},
                            {"key_proj", "k"},
                            {"value_proj", "v"},
                            {"pos_query_proj", "position.q"},
                            {"pos_key_proj", "position.k"}});
  for (const char* head : {"lm_predictions.*", "mask_predictions.*", "pooler.*"}) map.drop(head);
  return map;
}

NameMap vit_names() {
  const std::string prefix = "[vit.]", layer = prefix + "encoder.layer.{}.";
  const auto rows = [](const Tensor& x) { return x.reshape({-1, x.size(-1)}); };
  NameMap map;
  map.convert(prefix + "embeddings.cls_token", "cls",
              {"[1, 1, d] as [d]", [](const Tensor& x) { return x.reshape({-1}); },
               [](const Tensor& x) {
                 return x.reshape({1, 1, -1});
               },
               true})
      .convert(prefix + "embeddings.position_embeddings", "positions",
               {"[1, n, d] as [n, d]", rows, [](const Tensor& x) { return x.unsqueeze(0); }, true})
      .drop(prefix + "pooler.*");
  rename_linears_and_norms(map, prefix, "",
                           {{"embeddings.patch_embeddings.projection", "patches.projection"},
                            {"layernorm", "encoder.norm"}});
  rename_linears_and_norms(map, "", "", {{"classifier", "head"}});
  rename_linears_and_norms(map, layer, "encoder.layers.{}.",
                           {{"attention.attention.query", "self_attention.q"},
                            {"attention.attention.key", "self_attention.k"},
                            {"attention.attention.value", "self_attention.v"},
                            {"attention.output.dense", "self_attention.out"},
                            {"layernorm_before", "norm1"},
                            {"layernorm_after", "norm2"},
                            {"intermediate.dense", "feed_forward.linear1"},
                            {"output.dense", "feed_forward.linear2"}});
  return map;
}

}  // namespace stretto::nn
