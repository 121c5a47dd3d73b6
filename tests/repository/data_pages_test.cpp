// The code on docs/data.md; see pages_test.cpp.
#include <cmath>
#include <string>
#include <vector>

#include "stretto.h"
#include "tests/support/catch.h"

using namespace stretto;  // NOLINT

TEST_CASE("data.md: crops and rows", "[repository][docs]") {
  const std::string text(200, 'a');
  const auto tokenizer = nn::VocabularyTokenizer::learn(nn::TokenKind::chars, text);
  const nn::TokenStream stream(tokenizer, text);
  const nn::RandomCrops crops(stream, 16, 64, 1);  // batch 16, length 64, seed 1
  const nn::Batch batch = crops(0);                // of step 0: a function of seed and step
  CHECK(batch.inputs.shape() == Shape{16, 64});
}

TEST_CASE("data.md: rows of a data set", "[repository][docs]") {
  const Tensor data = arange(64).reshape({64, 1});
  const int64_t step = 1;
  nn::EpochOrder order(data.size(0), 32, 1);  // rows, batch, seed
  const std::vector<int64_t> rows = order(step);
  const Tensor batch = index_select(data, 0, tensor(rows, {int64_t(rows.size())}));
  CHECK(batch.to_vector<int64_t>() == rows);
}

TEST_CASE("data.md: masked tokens", "[repository][docs]") {
  const Tensor tokens = randint(3, 100, {4, 50});
  const nn::Batch batch = nn::masked_batch(
      tokens, {.vocabulary = 100, .mask_token = 1, .special = {0, 1, 2}}, /*seed*/ 1, /*step*/ 0);
  const Tensor scored = ne(batch.targets, nn::ignore_index);
  CHECK(equal(where(scored, batch.targets, tokens), tokens));
}

TEST_CASE("data.md: masked tokens of sentences", "[repository][docs]") {
  const std::vector<std::vector<int64_t>> sentences{std::vector<int64_t>(20, 5), {6, 7}};
  nn::Embedding embedding({.count = 100, .dim = 8});
  nn::Encoder encoder(
      {.n_layers = 1,
       .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 16}}});
  nn::Linear head({.in = 8, .out = 100});
  const nn::Batch batch = nn::masked_batch(
      nn::pad_rows(sentences), {.vocabulary = 100, .mask_token = 1, .special = {0, 1, 2}}, 1, 0);
  const Tensor hidden = encoder(embedding(batch.inputs), {.key_padding = batch.padding});
  const Tensor loss = cross_entropy(head(hidden), batch.targets);
  CHECK(std::isfinite(loss.item()));
}

TEST_CASE("data.md: sentences with a class each", "[repository][docs]") {
  nn::SequenceClassifier model(
      {.vocabulary = 10,
       .n_classes = 2,
       .n_layers = 1,
       .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 16}},
       .input = {.learned_length = 8}});
  const std::vector<std::vector<int64_t>> sentences{{3, 4, 5}, {6, 7}};
  const nn::Batch batch = nn::classification_batch(sentences, {1, 0});  // targets [2]
  const Tensor loss = cross_entropy(model(batch.inputs, batch.padding), batch.targets);
  CHECK(nn::mean_loss(model, std::vector<nn::Batch>{batch}) == Approx(loss.item()).epsilon(1e-6));
}

TEST_CASE("data.md: padding", "[repository][docs]") {
  nn::Embedding embedding({.count = 10, .dim = 8});
  nn::TransformerLayer layer(
      {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 16}});
  const nn::PaddedRows rows = nn::pad_rows({{3, 4, 5}, {6, 7}});  // [2, 3], padded with 0
  const Tensor y = layer(embedding(rows.tokens), {.key_padding = rows.padding});
  CHECK(allclose(y[1].slice(0, 0, 2), layer(embedding(tensor<int64_t>({6, 7}, {1, 2})))[0], 1e-5,
                 1e-5));
}

TEST_CASE("data.md: images", "[repository][docs]") {
  const Tensor images = rand({2, 3, 32, 32});
  nn::VisionTransformer model(
      {.image = 32,
       .patch = 4,
       .n_classes = 10,
       .n_layers = 2,
       .layer = {.d_model = 64,
                 .attention = {.n_heads = 4,
                               .position =
                                   nn::grid_relative({.height = 8, .width = 8, .class_tokens = 1})},
                 .feed_forward = {.d_hidden = 256, .activation = Activation::gelu}},
       .position = nn::ImagePosition::none});
  const Tensor logits = model(images);  // f32 [B, 3, 32, 32] → [B, 10]
  CHECK(logits.shape() == Shape{2, 10});
  model.to(bf16);
  CHECK(model(images.to(bf16)).dtype() == bf16);
  model.to(f32);

  // Images and classes are a Batch too.
  nn::AdamW optimizer(model.parameters(), {});
  nn::Batch batch{images, tensor<int64_t>({3, 7})};
  nn::Trainer trainer(model, optimizer, {.steps = 1, .micro_batches = 2, .quiet = true});
  CHECK(trainer.run(
      [&](int64_t step) {
        const nn::Batch staged = trainer.stage_batch(step, [&](int64_t) { return batch; });
        return cross_entropy(model(staged.inputs), staged.targets);
      },
      [&] { return nn::mean_loss(model, std::vector<nn::Batch>{batch}); }));
  CHECK(std::isfinite(trainer.evaluation()->validation));
}

TEST_CASE("data.md: several targets", "[repository][docs]") {
  const std::vector<int64_t> notes(200, 1), chords(200, 2), beats(200, 3);
  nn::Embedding body({.count = 5, .dim = 8});
  nn::Linear chord_head({.in = 8, .out = 5}), beat_head({.in = 8, .out = 5});
  const nn::AlignedCrops crops({notes, chords, beats}, 16, 32, 1);
  const Tensors batch = crops(0);        // three tensors i64 [16, 32]
  const Tensor hidden = body(batch[0]);  // [16, 32, d_model]
  const Tensor loss = cross_entropy(chord_head(hidden), batch[1]) +
                      0.5 * cross_entropy(beat_head(hidden), batch[2]);
  CHECK(loss.dim() == 0);
}
