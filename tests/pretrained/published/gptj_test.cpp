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

TEST_CASE("GPT-J loads from its checkpoint", "[published]") {
  Checkpoint file;
  file.add("transformer.wte.weight", {11, 16});
  for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
    file.add_norm(layer + "ln_1", 16);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
      file.add_linear(layer + "attn." + part, 16, 16, false);
    file.add_linear(layer + "mlp.fc_in", 16, 64);
    file.add_linear(layer + "mlp.fc_out", 64, 16);
    file.add(layer + "attn.bias", {1, 1, 12, 12});  // the causal mask
    file.add(layer + "attn.masked_bias", {});
  }
  file.add_norm("transformer.ln_f", 16);
  file.add_linear("lm_head", 16, 11);
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());

  const RotaryOptions rotation{.dims = 4, .pairing = RotaryPairing::interleaved};
  nn::LanguageModel model(
      {.vocabulary = 11,
       .n_layers = 2,
       .layer = {.d_model = 16,
                 .attention = {.n_heads = 2, .bias = false, .position = nn::rotary(rotation)},
                 .feed_forward = {.d_hidden = 64, .activation = nn::Activation::gelu_tanh},
                 .residual = nn::Residual::parallel_one_norm},
       .input = {.scale = false},
       .output_bias = true});
  model.to(f64);
  nn::load_weights(folder.file("model.safetensors"), model, nn::gptj_names(model.options));
  const reference::Matrix want =
      reference::gptj(reference::Weights(file.tensors()), some_tokens, 2, 2, 4);
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
