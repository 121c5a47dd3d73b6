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

TEST_CASE("Mistral loads from its checkpoint", "[published]") {
  Checkpoint file;
  file.add("model.embed_tokens.weight", {11, 16});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add_linear(layer + "self_attn.q_proj", 16, 24, false);
    file.add_linear(layer + "self_attn.k_proj", 16, 12, false);
    file.add_linear(layer + "self_attn.v_proj", 16, 12, false);
    file.add_linear(layer + "self_attn.o_proj", 24, 16, false);
    file.add_linear(layer + "mlp.gate_proj", 16, 24, false);
    file.add_linear(layer + "mlp.up_proj", 16, 24, false);
    file.add_linear(layer + "mlp.down_proj", 24, 16, false);
    file.add_norm(layer + "input_layernorm", 16, false);
    file.add_norm(layer + "post_attention_layernorm", 16, false);
  }
  file.add_norm("model.norm", 16, false);
  file.add_linear("lm_head", 16, 11, false);
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());

  nn::LanguageModel model({.vocabulary = 11,
                           .n_layers = 2,
                           .layer = {.d_model = 16,
                                     .attention = {.n_heads = 4,
                                                   .n_kv_heads = 2,
                                                   .d_key = 6,
                                                   .d_value = 6,
                                                   .bias = false,
                                                   .window = 4,
                                                   .position = nn::rotary()},
                                     .feed_forward = {.d_hidden = 24,
                                                      .activation = nn::Activation::silu,
                                                      .bias = false,
                                                      .gated = true},
                                     .norm_kind = nn::NormKind::rms,
                                     .norm_eps = 1e-5},
                           .input = {.scale = false}});
  model.to(f64);
  nn::load_weights(folder.file("model.safetensors"), model, nn::llama_names(model.options));
  const reference::Matrix want = reference::mistral(reference::Weights(file.tensors()), some_tokens,
                                                    {.layers = 2,
                                                     .heads = 4,
                                                     .kv_heads = 2,
                                                     .rates = reference::rotary_rates(6, 10000),
                                                     .window = 4});
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
