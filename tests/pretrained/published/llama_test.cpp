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

namespace {

constexpr int64_t n_layers = 2, n_heads = 4, n_kv_heads = 2;

// The options that the family shares, without a position.
nn::LanguageModel::Options family() {
  return {.vocabulary = 11,
          .n_layers = n_layers,
          .layer = {.d_model = 16,
                    .attention = {.n_heads = n_heads, .n_kv_heads = n_kv_heads, .bias = false},
                    .feed_forward = {.d_hidden = 24,
                                     .activation = nn::Activation::silu,
                                     .bias = false,
                                     .gated = true},
                    .norm_kind = nn::NormKind::rms,
                    .norm_eps = 1e-5},
          .input = {.scale = false}};
}

// LLaMA 3.1, whose rotation is scaled.
nn::LanguageModel::Options options() {
  nn::LanguageModel::Options o = family();
  o.layer.attention.position = nn::rotary(
      {.base = 500000,
       .frequencies = llama3_frequencies({.dims = 4, .base = 500000, .factor = 8, .length = 12})});
  return o;
}

// A checkpoint with heads of d dimensions; of Qwen3 with norms of q and k, and a tied output.
Checkpoint checkpoint(int64_t d = 4, bool qwen3 = false) {
  Checkpoint file;
  file.add("model.embed_tokens.weight", {11, 16});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add_linear(layer + "self_attn.q_proj", 16, n_heads * d, false);
    file.add_linear(layer + "self_attn.k_proj", 16, n_kv_heads * d, false);
    file.add_linear(layer + "self_attn.v_proj", 16, n_kv_heads * d, false);
    file.add_linear(layer + "self_attn.o_proj", n_heads * d, 16, false);
    file.add_linear(layer + "mlp.gate_proj", 16, 24, false);
    file.add_linear(layer + "mlp.up_proj", 16, 24, false);
    file.add_linear(layer + "mlp.down_proj", 24, 16, false);
    file.add_norm(layer + "input_layernorm", 16, false);
    file.add_norm(layer + "post_attention_layernorm", 16, false);
    if (!qwen3) continue;
    file.add_norm(layer + "self_attn.q_norm", d, false);
    file.add_norm(layer + "self_attn.k_norm", d, false);
  }
  file.add_norm("model.norm", 16, false);
  if (!qwen3) file.add_linear("lm_head", 16, 11, false);
  return file;
}

// Loads the checkpoint at `path` and returns the logits of some_tokens.
Tensor logits(const nn::LanguageModel::Options& o, const std::string& path, nn::NameMap names) {
  nn::LanguageModel model(o);
  model.to(f64);
  nn::load_weights(path, model, names);
  return model(as_batch(some_tokens))[0];
}
Tensor logits(const nn::LanguageModel::Options& o, const Checkpoint& file) {
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());
  return logits(o, folder.file("model.safetensors"), nn::llama_names(o));
}

reference::Matrix expected(const Checkpoint& file) {
  return reference::llama(
      reference::Weights(file.tensors()), some_tokens,
      {.layers = n_layers,
       .heads = n_heads,
       .kv_heads = n_kv_heads,
       .rates = reference::llama3_rates({.dims = 4, .base = 500000, .factor = 8, .length = 12})});
}

}  // namespace

TEST_CASE("LLaMA loads from its checkpoint in two shards", "[published]") {
  const Checkpoint file = checkpoint();
  const testing::TempDir folder;
  testing::save_two_shards(folder, file.named());
  const Tensor y = logits(options(), folder.str(), nn::llama_names(options()));
  CHECK(worst_error(y, reference::tensor(expected(file))) < 1e-10);
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

  const std::string ours = "layers.{}.self_attention.", network = "layers.{}.feed_forward.";
  const Tensor y =
      logits(options(), path,
             nn::llama_names(options())
                 .split("model.layers.{}.self_attn.qkv_proj.weight",
                        {{ours + "q.weight", 4}, {ours + "k.weight", 2}, {ours + "v.weight", 2}})
                 .split("model.layers.{}.mlp.gate_up_proj.weight",
                        {network + "gate.weight", network + "up.weight"}));
  CHECK(worst_error(y, reference::tensor(expected(file))) < 1e-10);
}

TEST_CASE("Mistral loads from its checkpoint", "[published]") {
  const Checkpoint file = checkpoint(6);
  nn::LanguageModel::Options o = family();
  o.layer.attention.d_key = o.layer.attention.d_value = 6;
  o.layer.attention.window = 4;
  o.layer.attention.position = nn::rotary();
  const reference::Matrix want = reference::mistral(reference::Weights(file.tensors()), some_tokens,
                                                    {.layers = n_layers,
                                                     .heads = n_heads,
                                                     .kv_heads = n_kv_heads,
                                                     .rates = reference::rotary_rates(6, 10000),
                                                     .window = 4});
  CHECK(worst_error(logits(o, file), reference::tensor(want)) < 1e-10);
}

// With the YaRN scaling of its long contexts, and the output tied as in its small models.
TEST_CASE("Qwen3 loads from its checkpoint", "[published]") {
  const Checkpoint file = checkpoint(8, true);
  const YarnScaling scaling{.dims = 8, .base = 1e6, .factor = 4, .length = 32};
  nn::LanguageModel::Options o = family();
  o.layer.attention.d_key = o.layer.attention.d_value = 8;
  o.layer.attention.qk_norm = nn::NormOptions{.kind = nn::NormKind::rms};
  o.layer.attention.position = nn::rotary(
      {.frequencies = yarn_frequencies(scaling), .attention_factor = yarn_attention_factor(4)});
  o.layer.norm_eps = 1e-6;
  o.tied = true;
  const reference::Matrix want = reference::qwen3(reference::Weights(file.tensors()), some_tokens,
                                                  {.layers = n_layers,
                                                   .heads = n_heads,
                                                   .kv_heads = n_kv_heads,
                                                   .rates = reference::yarn_rates(scaling),
                                                   .attention_factor = 0.1 * std::log(4.0) + 1,
                                                   .eps = 1e-6});
  CHECK(worst_error(logits(o, file), reference::tensor(want)) < 1e-10);
}
