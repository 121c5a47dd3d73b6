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

TEST_CASE("GPT-2 loads from its checkpoint", "[published]") {
  Checkpoint file;
  file.add("transformer.wte.weight", {11, 12});
  file.add("transformer.wpe.weight", {16, 12});
  for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
    file.add_norm(layer + "ln_1", 12);
    file.add_norm(layer + "ln_2", 12);
    // Conv1D: [in, out].
    file.add(layer + "attn.c_attn.weight", {12, 36});
    file.add(layer + "attn.c_attn.bias", {36});
    file.add(layer + "attn.c_proj.weight", {12, 12});
    file.add(layer + "attn.c_proj.bias", {12});
    file.add(layer + "mlp.c_fc.weight", {12, 48});
    file.add(layer + "mlp.c_fc.bias", {48});
    file.add(layer + "mlp.c_proj.weight", {48, 12});
    file.add(layer + "mlp.c_proj.bias", {12});
    file.add(layer + "attn.bias", {1, 1, 16, 16});  // the causal mask
  }
  file.add_norm("transformer.ln_f", 12);
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());

  nn::LanguageModel model(
      {.vocabulary = 11,
       .n_layers = 2,
       .layer = {.d_model = 12,
                 .attention = {.n_heads = 3},
                 .feed_forward = {.d_hidden = 48, .activation = nn::Activation::gelu_tanh}},
       .input = {.scale = false, .learned_length = 16},
       .tied = true});
  model.to(f64);
  nn::load_weights(folder.file("model.safetensors"), model, nn::gpt2_names(model.options));
  const reference::Matrix want =
      reference::gpt2(reference::Weights(file.tensors()), some_tokens, 2, 3);
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(want)) < 1e-10);
}
