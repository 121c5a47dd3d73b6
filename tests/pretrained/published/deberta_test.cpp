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

namespace {

nn::Bert::Options options() {
  nn::Bert::Options o = nn::deberta_v3_base(11);
  o.n_layers = 2;
  o.layer.d_model = 12;
  o.layer.attention.n_heads = 3;
  o.layer.feed_forward.d_hidden = 20;
  o.disentangled->max_distance = 12;
  o.disentangled->buckets = 4;
  return o;
}

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

  nn::Bert model(options());
  model.to(f64).eval();
  nn::load_weights(path, model, nn::deberta_names(options()));
  const reference::Matrix want =
      reference::deberta_v2(reference::Weights(file.tensors()), some_tokens,
                            {.layers = 2, .heads = 3, .buckets = 4, .max_distance = 12});
  const nn::TokenBatch batch(as_batch(some_tokens));
  CHECK(worst_error(model(batch)[0], reference::tensor(want)) < 1e-10);
  CHECK(worst_error(nn::clone(model)->operator()(batch), model(batch)) == 0);
}

TEST_CASE("DeBERTa: options that do not fit together are errors", "[published]") {
  nn::Bert::Options o = options();
  o.layer.attention.position = nn::disentangled();
  CHECK_THROWS_WITH(nn::Bert(o), Containing("needs its own rows and no layer.attention.position"));
  o = options();
  o.disentangled.reset();
  CHECK_THROWS_WITH(nn::Bert(o), Containing("relative_norm needs disentangled attention"));
  o.relative_norm = false;
  o.kernel_size = 2;
  CHECK_THROWS_WITH(nn::Bert(o), Containing("kernel_size 2; d_model must be at least 1"));
  o = options();
  o.layer.attention.n_kv_heads = 1;
  CHECK_THROWS_WITH(nn::Bert(o), Containing("projection k of 3 heads"));
}

TEST_CASE("DeBERTa: gradients", "[published]") {
  manual_seed(4);
  nn::Bert::Options o = options();
  o.n_layers = 2;
  o.layer.dropout = o.layer.attention.dropout = o.disentangled->dropout = 0;
  o.kernel_size = 3;
  nn::Bert model(o);
  model.to(f64);
  const Tensor padding = tensor<int64_t>({0, 0, 0, 0, 0, 0, 0, 0, 1, 1}).reshape({1, 10}).to(u8);
  const nn::TokenBatch batch(as_batch(some_tokens), padding);
  const Tensor w = testing::fixed_noise({1, 8, 12}, 1);
  nn::gradcheck(model, [&] { return sum(model(batch).slice(1, 0, 8) * w); });
}

TEST_CASE("DeBERTa's convolution adds windows of tokens", "[published]") {
  struct Model : nn::Module {
    nn::BertConvolution convolution{
        *this, "convolution", {.d_model = 4, .kernel_size = 3, .norm = {.eps = 1e-7}}};
  };
  Model model;
  model.to(f64);
  const nn::BertConvolution& c = model.convolution;
  const Tensor x = testing::fixed_noise({2, 5, 4}, 1), y = testing::fixed_noise({2, 5, 4}, 2);
  const Tensor padding = tensor<int64_t>({0, 0, 0, 0, 0, 0, 0, 0, 1, 1}).reshape({2, 5}).to(u8);
  const Tensor got = c(x, y, padding, {});
  for (int64_t b = 0; b < 2; ++b) {
    const int64_t n = b == 0 ? 5 : 3;
    for (int64_t i = 0; i < n; ++i) {
      Tensor sum = c.window.bias;
      for (int64_t k = 0; k < 3; ++k)
        if (const int64_t j = i + k - 1; j >= 0 && j < n)
          sum = sum + linear(x[b][j], c.window.weight.slice(1, 4 * k, 4 * k + 4));
      CHECK(worst_error(got[b][i], c.norm(y[b][i] + gelu(sum))) < 1e-14);
    }
  }
}
