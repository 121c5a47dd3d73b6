// The names of DeBERTa-v2 in Hugging Face's transformers, for an encoder written with
// nn::TransformerLayer: one table of relative positions for all layers, with a norm.
#pragma once

#include "nn/files/name_map.h"

namespace stretto::testing {

inline nn::NameMap deberta_v2_names() {
  const std::string layer = "[deberta.]encoder.layer.{}.", ours = "layers.{}.";
  const std::pair<std::string, std::string> parts[] = {
      {layer + "attention.self.query_proj", ours + "self_attention.q"},
      {layer + "attention.self.key_proj", ours + "self_attention.k"},
      {layer + "attention.self.value_proj", ours + "self_attention.v"},
      {layer + "attention.output.dense", ours + "self_attention.out"},
      {layer + "attention.output.LayerNorm", ours + "norm1"},
      {layer + "intermediate.dense", ours + "feed_forward.linear1"},
      {layer + "output.dense", ours + "feed_forward.linear2"},
      {layer + "output.LayerNorm", ours + "norm2"},
      {"[deberta.]embeddings.LayerNorm", "embedding_norm"},
      {"[deberta.]encoder.LayerNorm", "relative_norm"}};
  nn::NameMap map;
  map.rename("[deberta.]embeddings.word_embeddings.weight", "embedding.weight")
      .rename("[deberta.]encoder.rel_embeddings.weight", "relative.weight")
      .drop("*embeddings.position_ids")
      .drop("cls.*")  // heads of pretraining, under three names
      .drop("lm_predictions.*")
      .drop("mask_predictions.*");
  for (const auto& [published, name] : parts)
    for (const char* kind : {".weight", ".bias"}) map.rename(published + kind, name + kind);
  return map;
}

}  // namespace stretto::testing
