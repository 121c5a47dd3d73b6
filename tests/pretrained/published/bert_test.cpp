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
  nn::Bert::Options o = nn::bert_base(11);
  o.max_length = 16;
  o.n_layers = 2;
  o.layer.d_model = 12;
  o.layer.attention.n_heads = 3;
  o.layer.feed_forward.d_hidden = 20;
  return o;
}

Checkpoint checkpoint() {
  Checkpoint file;
  const std::string input = "bert.embeddings.";
  file.add(input + "word_embeddings.weight", {11, 12});
  file.add(input + "position_embeddings.weight", {16, 12});
  file.add(input + "token_type_embeddings.weight", {2, 12});
  file.add_norm(input + "LayerNorm", 12);
  for (const std::string layer : {"bert.encoder.layer.0.", "bert.encoder.layer.1."}) {
    for (const char* part : {"query", "key", "value"})
      file.add_linear(layer + "attention.self." + part, 12, 12);
    file.add_linear(layer + "attention.output.dense", 12, 12);
    file.add_norm(layer + "attention.output.LayerNorm", 12);
    file.add_linear(layer + "intermediate.dense", 12, 20);
    file.add_linear(layer + "output.dense", 20, 12);
    file.add_norm(layer + "output.LayerNorm", 12);
  }
  file.add_linear("bert.pooler.dense", 12, 12);
  file.add("cls.predictions.bias", {11});
  return file;
}

}  // namespace

TEST_CASE("BERT loads from its checkpoint", "[published]") {
  const Checkpoint file = checkpoint();
  const testing::TempDir folder;
  nn::save_safetensors(folder.file("model.safetensors"), file.named());
  nn::Bert model(options());
  model.to(f64).eval();
  nn::load_weights(folder.str(), model, nn::bert_names());

  const std::vector<int64_t> types{0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, zeros_(10, 0);
  const reference::Weights weights(file.tensors());
  const auto expected = [&](const std::vector<int64_t>& t) {
    return reference::tensor(reference::bert(weights, some_tokens, t, 2, 3));
  };
  const nn::TokenBatch batch(as_batch(some_tokens));
  CHECK(worst_error(model(batch)[0], expected(zeros_)) < 1e-10);
  CHECK(worst_error(model(batch, as_batch(types))[0], expected(types)) < 1e-10);

  SECTION("padding changes nothing at the other positions") {
    std::vector<int64_t> longer = some_tokens, hidden(10, 0);
    for (int i = 0; i < 3; ++i) {
      longer.push_back(7);
      hidden.push_back(1);
    }
    const nn::TokenBatch padded(as_batch(longer), as_batch(hidden).to(u8));
    CHECK(worst_error(model(padded)[0].slice(0, 0, 10), expected(zeros_)) < 1e-10);
  }
  SECTION("RoBERTa's table has rows before the first position") {
    nn::Bert::Options o = options();
    o.first_position = 2;
    o.max_length = 14;
    nn::Bert roberta(o);
    roberta.to(f64).eval();
    nn::copy_state(model, roberta);
    const Tensor &from = model.embedding.positions.table, &to = roberta.embedding.positions.table;
    REQUIRE(to.shape() == from.shape());
    to.detach().slice(0, 2).copy_(from.detach().slice(0, 0, 14));
    CHECK(worst_error(roberta(batch)[0], expected(zeros_)) < 1e-10);
    CHECK_THROWS_WITH(roberta(nn::TokenBatch(zeros({1, 15}, {.dtype = i64}))),
                      Containing("at most max_length 14"));
  }
  SECTION("the pooled vector is a layer over the first token") {
    const Tensor y = model(batch);
    const Tensor w = file["bert.pooler.dense.weight"].to(f64).to(y.device());
    const Tensor b = file["bert.pooler.dense.bias"].to(f64).to(y.device());
    CHECK(worst_error(model.pooled(y), tanh(linear(y.select(1, 0), w, b))) < 1e-12);
  }
  SECTION("tokens beyond the table of positions are an error") {
    CHECK_THROWS_WITH(model(nn::TokenBatch(zeros({1, 17}, {.dtype = i64}))),
                      Containing("max_length 16"));
  }
}
