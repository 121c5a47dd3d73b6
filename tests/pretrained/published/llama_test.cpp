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

namespace {

// LLaMA 3.1, whose rotation is scaled.
nn::LanguageModel::Options options() {
  const RotaryOptions rotation{
      .base = 500000,
      .frequencies = llama3_frequencies({.dims = 4, .base = 500000, .factor = 8, .length = 12})};
  return {.vocabulary = 11,
          .n_layers = 2,
          .layer = {.d_model = 16,
                    .attention = {.n_heads = 4,
                                  .n_kv_heads = 2,
                                  .bias = false,
                                  .position = nn::rotary(rotation)},
                    .feed_forward = {.d_hidden = 24,
                                     .activation = nn::Activation::silu,
                                     .bias = false,
                                     .gated = true},
                    .norm_kind = nn::NormKind::rms,
                    .norm_eps = 1e-5},
          .input = {.scale = false}};
}

Checkpoint checkpoint() {
  Checkpoint file;
  file.add("model.embed_tokens.weight", {11, 16});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add_linear(layer + "self_attn.q_proj", 16, 16, false);
    file.add_linear(layer + "self_attn.k_proj", 16, 8, false);
    file.add_linear(layer + "self_attn.v_proj", 16, 8, false);
    file.add_linear(layer + "self_attn.o_proj", 16, 16, false);
    file.add_linear(layer + "mlp.gate_proj", 16, 24, false);
    file.add_linear(layer + "mlp.up_proj", 16, 24, false);
    file.add_linear(layer + "mlp.down_proj", 24, 16, false);
    file.add_norm(layer + "input_layernorm", 16, false);
    file.add_norm(layer + "post_attention_layernorm", 16, false);
  }
  file.add_norm("model.norm", 16, false);
  file.add_linear("lm_head", 16, 11, false);
  return file;
}

reference::Matrix expected(const Checkpoint& file) {
  return reference::llama(
      reference::Weights(file.tensors()), some_tokens,
      {.layers = 2,
       .heads = 4,
       .kv_heads = 2,
       .rates = reference::llama3_rates({.dims = 4, .base = 500000, .factor = 8, .length = 12})});
}

}  // namespace

TEST_CASE("LLaMA loads from its checkpoint in two shards", "[published]") {
  const Checkpoint file = checkpoint();
  const testing::TempDir folder;
  testing::save_two_shards(folder, file.named());

  nn::LanguageModel model(options());
  model.to(f64);
  nn::load_weights(folder.str(), model, nn::llama_names(model.options));
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(expected(file))) < 1e-10);
}

// Stored as in Phi-3 and vLLM: q, k and v, of unequal sizes, in one tensor, and gate and up in one.
TEST_CASE("LLaMA loads with fused projections", "[published]") {
  const Checkpoint file = checkpoint();
  std::vector<nn::NamedTensor> fused;
  for (const auto& [name, value] : file.tensors())
    if (name.find("self_attn.o_proj") != name.npos || name.find("_proj") == name.npos ||
        name.find("down_proj") != name.npos)
      fused.push_back({name, value});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string self = layer + "self_attn.", mlp = layer + "mlp.";
    fused.push_back(
        {self + "qkv_proj.weight", cat({file[self + "q_proj.weight"], file[self + "k_proj.weight"],
                                        file[self + "v_proj.weight"]})});
    fused.push_back({mlp + "gate_up_proj.weight",
                     cat({file[mlp + "gate_proj.weight"], file[mlp + "up_proj.weight"]})});
  }
  const testing::TempDir folder;
  const std::string path = folder.file("model.safetensors");
  nn::save_safetensors(path, fused);

  nn::LanguageModel model(options());
  model.to(f64);
  const std::string ours = "layers.{}.self_attention.", network = "layers.{}.feed_forward.";
  nn::load_weights(
      path, model,
      nn::llama_names(model.options)
          .split("model.layers.{}.self_attn.qkv_proj.weight",
                 {{ours + "q.weight", 4}, {ours + "k.weight", 2}, {ours + "v.weight", 2}})
          .split("model.layers.{}.mlp.gate_up_proj.weight",
                 {network + "gate.weight", network + "up.weight"}));
  CHECK(worst_error(model(as_batch(some_tokens))[0], reference::tensor(expected(file))) < 1e-10);
}
