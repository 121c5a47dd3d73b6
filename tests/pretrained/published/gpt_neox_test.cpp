#include "stretto_pretrained.h"
#include "tests/pretrained/published/checkpoint.h"
#include "tests/reference/published/published.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::as_batch;
using testing::Checkpoint;
using testing::some_tokens;
using testing::worst_error;

TEST_CASE("GPT-NeoX loads from its checkpoint in half precision", "[published]") {
  Checkpoint file;
  file.add("gpt_neox.embed_in.weight", {11, 16});
  for (const std::string layer : {"gpt_neox.layers.0.", "gpt_neox.layers.1."}) {
    file.add_norm(layer + "input_layernorm", 16);
    file.add_norm(layer + "post_attention_layernorm", 16);
    file.add_linear(layer + "attention.query_key_value", 16, 48);
    file.add_linear(layer + "attention.dense", 16, 16);
    file.add_linear(layer + "mlp.dense_h_to_4h", 16, 64);
    file.add_linear(layer + "mlp.dense_4h_to_h", 64, 16);
    file.add(layer + "attention.bias", {1, 1, 12, 12});  // the causal mask
    file.add(layer + "attention.masked_bias", {});
    file.add(layer + "attention.rotary_emb.inv_freq", {1});
  }
  file.add_norm("gpt_neox.final_layer_norm", 16);
  file.add_linear("embed_out", 16, 11, false);
  const testing::TempDir folder;
  testing::save_f16(folder.file("model.safetensors"), file.named());

  nn::LanguageModel model(
      {.vocabulary = 11,
       .n_layers = 2,
       .layer = {.d_model = 16,
                 .attention = {.n_heads = 2,
                               .position = nn::rotary({.dims = 2})},  // a quarter of a head
                 .feed_forward = {.d_hidden = 64, .activation = nn::Activation::gelu},
                 .residual = nn::Residual::parallel},
       .input = {.scale = false}});
  model.to(f64);
  nn::load_weights(folder.file("model.safetensors"), model, nn::gpt_neox_names(model.options));
  const reference::Matrix want =
      reference::gpt_neox(reference::Weights(file.tensors()), some_tokens, 2, 2, 0.25);
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
