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

// Three heads: their slopes are not powers of one number.
TEST_CASE("BLOOM loads from its checkpoint", "[published]") {
  Checkpoint file;
  file.add("word_embeddings.weight", {11, 12});
  file.add_norm("word_embeddings_layernorm", 12);
  for (const std::string layer : {"h.0.", "h.1."}) {
    file.add_norm(layer + "input_layernorm", 12);
    file.add_norm(layer + "post_attention_layernorm", 12);
    file.add_linear(layer + "self_attention.query_key_value", 12, 36);
    file.add_linear(layer + "self_attention.dense", 12, 12);
    file.add_linear(layer + "mlp.dense_h_to_4h", 12, 48);
    file.add_linear(layer + "mlp.dense_4h_to_h", 48, 12);
  }
  file.add_norm("ln_f", 12);
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());

  nn::LanguageModel model(
      {.vocabulary = 11,
       .n_layers = 2,
       .layer = {.d_model = 12,
                 .attention = {.n_heads = 3, .position = nn::alibi()},
                 .feed_forward = {.d_hidden = 48, .activation = nn::Activation::gelu_tanh}},
       .input = {.scale = false, .norm = true},
       .tied = true});
  model.to(f64);
  nn::load_weights(folder.file("model.safetensors"), model, nn::bloom_names(model.options));
  const reference::Matrix want =
      reference::bloom(reference::Weights(file.tensors()), some_tokens, 2, 3);
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
