#include <cmath>

#include "stretto_pretrained.h"
#include "tests/pretrained/published/checkpoint.h"
#include "tests/reference/published/published.h"
#include "tests/reference/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::as_batch;
using testing::Checkpoint;
using testing::some_tokens;
using testing::worst_error;

// With the YaRN scaling of its long contexts, and the output tied as in its small models.
TEST_CASE("Qwen3 loads from its checkpoint", "[published]") {
  Checkpoint file;
  file.add("model.embed_tokens.weight", {11, 16});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add_linear(layer + "self_attn.q_proj", 16, 32, false);
    file.add_linear(layer + "self_attn.k_proj", 16, 16, false);
    file.add_linear(layer + "self_attn.v_proj", 16, 16, false);
    file.add_linear(layer + "self_attn.o_proj", 32, 16, false);
    file.add_linear(layer + "mlp.gate_proj", 16, 24, false);
    file.add_linear(layer + "mlp.up_proj", 16, 24, false);
    file.add_linear(layer + "mlp.down_proj", 24, 16, false);
    file.add_norm(layer + "input_layernorm", 16, false);
    file.add_norm(layer + "post_attention_layernorm", 16, false);
    file.add_norm(layer + "self_attn.q_norm", 8, false);
    file.add_norm(layer + "self_attn.k_norm", 8, false);
  }
  file.add_norm("model.norm", 16, false);
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());

  const YarnScaling scaling{.dims = 8, .base = 1e6, .factor = 4, .length = 32};
  const RotaryOptions rotation{.frequencies = yarn_frequencies(scaling),
                               .attention_factor = yarn_attention_factor(4)};
  nn::LanguageModel model(
      {.vocabulary = 11,
       .n_layers = 2,
       .layer = {.d_model = 16,
                 .attention = {.n_heads = 4,
                               .n_kv_heads = 2,
                               .d_key = 8,
                               .d_value = 8,
                               .bias = false,
                               .qk_norm = nn::NormOptions{.kind = nn::NormKind::rms},
                               .position = nn::rotary(rotation)},
                 .feed_forward = {.d_hidden = 24,
                                  .activation = nn::Activation::silu,
                                  .bias = false,
                                  .gated = true},
                 .norm_kind = nn::NormKind::rms,
                 .norm_eps = 1e-6},
       .input = {.scale = false},
       .tied = true});
  model.to(f64);
  nn::load_weights(folder.file("model.safetensors"), model, nn::llama_names(model.options));
  const reference::Matrix want = reference::qwen3(reference::Weights(file.tensors()), some_tokens,
                                                  {.layers = 2,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .rates = reference::yarn_rates(scaling),
                                                   .attention_factor = 0.1 * std::log(4.0) + 1,
                                                   .eps = 1e-6});
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
