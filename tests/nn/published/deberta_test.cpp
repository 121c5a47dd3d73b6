#include "stretto.h"
#include "tests/nn/published/checkpoint.h"
#include "tests/reference/published/published.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::as_batch;
using testing::Checkpoint;
using testing::some_tokens;
using testing::worst_error;

namespace {

// Configured as DeBERTa v3: one table of relative positions for all layers.
struct Deberta : nn::Module {
  nn::InputEmbedding embedding{*this,
                               "embedding",
                               {.vocabulary = 11,
                                .d_model = 12,
                                .input = {.scale = false, .norm = true},
                                .norm = {.eps = 1e-7}}};
  const Tensor relative = parameter("relative", zeros({8, 12}));
  nn::Encoder encoder{
      *this,
      "encoder",
      {.n_layers = 2,
       .layer = {.d_model = 12,
                 .attention =
                     {.n_heads = 3,
                      .position = nn::disentangled(
                          {.max_distance = 12, .buckets = 4, .mirrored = false, .rows = relative})},
                 .feed_forward = {.d_hidden = 20, .activation = nn::Activation::gelu},
                 .norm = nn::NormPlace::post,
                 .norm_eps = 1e-7}}};

  Tensor operator()(const Tensor& tokens) const { return encoder(embedding(tokens)); }
};

}  // namespace

TEST_CASE("DeBERTa v2 loads from its checkpoint", "[published]") {
  Checkpoint file;
  file.add("deberta.embeddings.word_embeddings.weight", {11, 12});
  file.add_norm("deberta.embeddings.LayerNorm", 12);
  for (const std::string layer : {"deberta.encoder.layer.0.", "deberta.encoder.layer.1."}) {
    for (const char* part : {"query_proj", "key_proj", "value_proj"})
      file.add_linear(layer + "attention.self." + part, 12, 12);
    file.add_linear(layer + "attention.output.dense", 12, 12);
    file.add_norm(layer + "attention.output.LayerNorm", 12);
    file.add_linear(layer + "intermediate.dense", 12, 20);
    file.add_linear(layer + "output.dense", 20, 12);
    file.add_norm(layer + "output.LayerNorm", 12);
  }
  file.add("deberta.encoder.rel_embeddings.weight", {8, 12});
  file.add_norm("deberta.encoder.LayerNorm", 12);
  const testing::TempDir folder;
  const std::string path = folder.file("model.safetensors");
  nn::save_safetensors(path, file.named());

  Deberta model;
  model.to(f64);
  // Our model has no norm of the relative rows: it is applied once, at loading.
  const nn::SafetensorsFile opened(path);
  const Tensor weight = opened["deberta.encoder.LayerNorm.weight"].to(f64);
  const Tensor bias = opened["deberta.encoder.LayerNorm.bias"].to(f64);
  const auto normed = [=](const Tensor& x) { return layer_norm(x.to(f64), weight, bias, 1e-7); };

  // The projections of the rows are those of the layer (share_att_key). A bias of keys adds a
  // constant to all scores of a query, so the rows have none.
  const std::string self = "encoder.layer.{}.attention.self.", ours = "encoder.layers.{}.";
  const std::string attention = ours + "self_attention.";
  nn::NameMap names;
  names.strip("deberta.")
      .rename("embeddings.word_embeddings.weight", "embedding.weight")
      .rename("embeddings.LayerNorm.*", "embedding.positions.norm.*")
      .convert("encoder.rel_embeddings.weight", "relative", normed)
      .drop("encoder.LayerNorm.*")
      .copy(self + "query_proj.weight", {attention + "q.weight", attention + "position.q.weight"})
      .copy(self + "query_proj.bias", {attention + "q.bias", attention + "position.q.bias"})
      .copy(self + "key_proj.weight", {attention + "k.weight", attention + "position.k.weight"})
      .rename(self + "key_proj.bias", attention + "k.bias")
      .rename(self + "value_proj.*", attention + "v.*")
      .rename("encoder.layer.{}.attention.output.dense.*", attention + "out.*")
      .rename("encoder.layer.{}.attention.output.LayerNorm.*", ours + "norm1.*")
      .rename("encoder.layer.{}.intermediate.dense.*", ours + "feed_forward.linear1.*")
      .rename("encoder.layer.{}.output.dense.*", ours + "feed_forward.linear2.*")
      .rename("encoder.layer.{}.output.LayerNorm.*", ours + "norm2.*");
  nn::load_weights(path, model, names);
  const reference::Matrix want =
      reference::deberta_v2(reference::Weights(file.tensors()), some_tokens,
                            {.layers = 2, .heads = 3, .buckets = 4, .max_distance = 12});
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
