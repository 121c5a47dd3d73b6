#include "stretto_pretrained.h"
#include "tests/pretrained/published/checkpoint.h"
#include "tests/reference/published/published.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::Checkpoint;
using testing::fixed_noise;
using testing::worst_error;

namespace {

nn::VisionTransformer::Options options() {
  nn::VisionTransformer::Options o = nn::vit_base(5);
  o.image = {6, 8};
  o.patch = 2;
  o.channels = 3;
  o.n_layers = 2;
  o.layer.d_model = 12;
  o.layer.norm_eps = 1e-12;
  o.layer.attention.n_heads = 3;
  o.layer.feed_forward.d_hidden = 20;
  return o;
}

Checkpoint checkpoint() {
  Checkpoint file;
  const std::string input = "vit.embeddings.";
  file.add(input + "cls_token", {1, 1, 12});
  file.add(input + "position_embeddings", {1, 13, 12});
  file.add(input + "patch_embeddings.projection.weight", {12, 3, 2, 2});
  file.add(input + "patch_embeddings.projection.bias", {12});
  for (const std::string layer : {"vit.encoder.layer.0.", "vit.encoder.layer.1."}) {
    for (const char* part : {"query", "key", "value"})
      file.add_linear(layer + "attention.attention." + part, 12, 12);
    file.add_linear(layer + "attention.output.dense", 12, 12);
    file.add_norm(layer + "layernorm_before", 12);
    file.add_norm(layer + "layernorm_after", 12);
    file.add_linear(layer + "intermediate.dense", 12, 20);
    file.add_linear(layer + "output.dense", 20, 12);
  }
  file.add_norm("vit.layernorm", 12);
  file.add_linear("classifier", 12, 5);
  return file;
}

// Checks that the model has the tensors of the file under the names of the map.
void check_saves(const nn::Module& model, const nn::NameMap& names, const Checkpoint& file) {
  std::vector<nn::NamedTensor> tensors;
  for (const nn::NamedTensor& p : model.named_parameters())
    tensors.push_back({p.name, p.tensor.detach().to(f32).to(cpu)});
  std::map<std::string, Tensor> saved;
  for (const nn::NamedTensor& t : names.backwards(tensors)) saved[t.name] = t.tensor;
  REQUIRE(saved.size() == file.tensors().size());
  for (const auto& [name, tensor] : file.tensors()) {
    INFO(name);
    REQUIRE(saved.count(name) == 1);
    CHECK(testing::same_bits(saved[name], tensor));
  }
}

}  // namespace

TEST_CASE("ViT loads from its checkpoint and saves it again", "[published]") {
  const Checkpoint file = checkpoint();
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());
  nn::VisionTransformer model(options());
  model.to(f64).eval();
  nn::load_weights(folder.str(), model, nn::vit_names());

  const Tensor images = fixed_noise({2, 3, 6, 8}, 1);
  const reference::Weights weights(file.tensors());
  for (int64_t i = 0; i < 2; ++i)
    CHECK(worst_error(model(images)[i],
                      reference::tensor(reference::vit(weights, images[i], 2, 2, 3))[0]) < 1e-10);
  CHECK(worst_error((*model.head)(model.tokens(images).select(1, 0)), model(images)) < 1e-12);

  check_saves(model, nn::vit_names(), file);
}

TEST_CASE("torch.nn.Transformer loads from its state_dict and saves it again", "[published]") {
  Checkpoint file;
  for (const std::string stack : {"encoder.", "decoder."}) {
    const bool decoder = stack == "decoder.";
    for (const std::string& layer : {stack + "layers.0.", stack + "layers.1."}) {
      for (const char* part : {"self_attn.", "multihead_attn."}) {
        if (part == std::string("multihead_attn.") && !decoder) continue;
        file.add(layer + part + "in_proj_weight", {36, 12});
        file.add(layer + part + "in_proj_bias", {36});
        file.add_linear(layer + part + "out_proj", 12, 12);
      }
      file.add_linear(layer + "linear1", 12, 20);
      file.add_linear(layer + "linear2", 20, 12);
      for (int i = 1; i <= (decoder ? 3 : 2); ++i) file.add_norm(str(layer, "norm", i), 12);
    }
    file.add_norm(stack + "norm", 12);
  }

  struct Both : nn::Module {
    nn::StackOptions options{.n_layers = 2,
                             .layer = {.d_model = 12,
                                       .attention = {.n_heads = 3},
                                       .feed_forward = {.d_hidden = 20},
                                       .norm = nn::NormPlace::post},
                             .final_norm = true};
    nn::Encoder encoder{*this, "encoder", options};
    nn::Decoder decoder{*this, "decoder", options};
  };
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());
  Both model;
  model.to(f64).eval();
  nn::load_weights(folder.str(), model, nn::torch_transformer_names());

  const Tensor source = fixed_noise({1, 7, 12}, 1), target = fixed_noise({1, 5, 12}, 2);
  const reference::Weights weights(file.tensors());
  const reference::Matrix want = reference::torch_transformer(weights, reference::matrix(source[0]),
                                                              reference::matrix(target[0]), 2, 3);
  CHECK(worst_error(model.decoder(target, model.encoder(source))[0], reference::tensor(want)) <
        1e-10);

  check_saves(model, nn::torch_transformer_names(), file);
}

TEST_CASE("torch_transformer_names maps an encoder alone") {
  const nn::NameMap names = nn::torch_transformer_names();
  CHECK(names.targets("layers.3.self_attn.in_proj_bias") ==
        std::vector<std::string>{"layers.3.self_attention.q.bias", "layers.3.self_attention.k.bias",
                                 "layers.3.self_attention.v.bias"});
  CHECK(names.targets("layers.3.linear2.weight") ==
        std::vector<std::string>{"layers.3.feed_forward.linear2.weight"});
  CHECK(names.targets("layers.3.multihead_attn.k_proj_weight") ==
        std::vector<std::string>{"layers.3.cross_attention.k.weight"});
}
