#include "nn/models/vision_transformer.h"

#include "nn/init.h"
#include "nn/positions/plane.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

nn::VisionTransformer::Options small() {
  return {.image = {4, 6},
          .patch = {2, 3},
          .channels = 2,
          .n_classes = 3,
          .n_layers = 2,
          .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 12}}};
}

}  // namespace

TEST_CASE("ViT presets have the published numbers of parameters") {
  CHECK(nn::count_parameters<nn::VisionTransformer>(nn::vit_tiny()) == 5'717'416);
  CHECK(nn::count_parameters<nn::VisionTransformer>(nn::vit_small()) == 22'050'664);
  CHECK(nn::count_parameters<nn::VisionTransformer>(nn::vit_base()) == 86'567'656);
  CHECK(nn::count_parameters<nn::VisionTransformer>(nn::vit_large()) == 304'326'632);
}

TEST_CASE("PatchEmbedding projects the pixels of each patch") {
  nn::PatchEmbedding patches({.channels = 2, .patch = {2, 3}, .d_model = 5});
  patches.to(f64);
  const Tensor images = fixed_noise({3, 2, 4, 9}, 1), y = patches(images);
  REQUIRE(y.shape() == Shape{3, 6, 5});
  const Tensor weight = patches.projection.weight.flatten(1);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < 3; ++column) {
      const Tensor pixels =
          images.slice(2, 2 * row, 2 * row + 2).slice(3, 3 * column, 3 * column + 3).flatten(1);
      CHECK(worst_error(y.select(1, 3 * row + column),
                        linear(pixels, weight, patches.projection.bias)) < 1e-14);
    }
  CHECK(patches.label() == "PatchEmbedding(2 x 3, 2 → 5)");
  CHECK_THROWS_WITH(patches(fixed_noise({3, 2, 4, 8}, 1)),
                    Containing("must be [B, 2, height, width], whole patches of 2 x 3"));
}

TEST_CASE("VisionTransformer: positions and pooling") {
  const Tensor images = fixed_noise({3, 2, 4, 6}, 1);
  for (const nn::Pooling pooling : {nn::Pooling::cls, nn::Pooling::mean})
    for (const nn::ImagePosition position :
         {nn::ImagePosition::learned, nn::ImagePosition::sinusoid, nn::ImagePosition::none}) {
      const bool cls = pooling == nn::Pooling::cls;
      nn::VisionTransformer::Options o = small();
      o.pooling = pooling;
      o.position = position;
      if (position == nn::ImagePosition::none)
        o.layer.attention.position =
            nn::rotary_2d({.height = 2, .width = 2, .class_tokens = cls ? 1 : 0});
      nn::VisionTransformer model(o);
      model.to(f64).eval();
      const int64_t first = cls ? 1 : 0;
      const Tensor tokens = model.tokens(images);
      REQUIRE(tokens.shape() == Shape{3, first + 4, 8});
      CHECK(same_bits(model.encode(images), cls ? tokens.select(1, 0) : mean(tokens, {1})));
      CHECK(max(abs(model(images))).item() == 0);  // the head starts as 0
      CHECK(worst_error(model.tokens(images.slice(0, 2))[0], tokens[2]) < 1e-13);

      // Patches in another order are another image, whatever tells the position.
      const Tensor other = cat({images.slice(3, 3), images.slice(3, 0, 3)}, 3);
      CHECK(worst_error(model.encode(other), model.encode(images)) > 1e-4);

      const Tensor loss = cross_entropy(model(images), tensor<int64_t>({0, 2, 1}));
      loss.backward();
      CHECK(max(abs(model.head->weight.grad())).item() > 0);
    }
}

TEST_CASE("VisionTransformer: without a head, labels and errors") {
  nn::VisionTransformer::Options o = small();
  o.n_classes = 0;
  nn::VisionTransformer model(o);
  CHECK(model.encode(zeros({2, 2, 4, 6})).shape() == Shape{2, 8});
  CHECK(model.label() == "VisionTransformer(2 layers, 2 x 2 patches)");
  CHECK_THROWS_WITH(model(zeros({2, 2, 4, 6})),
                    "[VisionTransformer] a model with n_classes 0 has no head; call encode()");
  CHECK_THROWS_WITH(model.encode(zeros({2, 2, 6, 4})), Containing("must be [B, 2, 4, 6]"));
  o.image = {4, 7};
  CHECK_THROWS_WITH(nn::VisionTransformer(o),
                    "[VisionTransformer] images of 4 x 7 pixels, patches of 2 x 3; patches must "
                    "divide images");
  o = small();
  o.pooling = nn::Pooling::first;
  CHECK_THROWS_WITH(nn::VisionTransformer(o),
                    "[VisionTransformer] Pooling::first; accepted: cls, mean");
  o = small();
  o.n_layers = 0;
  CHECK_THROWS_WITH(nn::VisionTransformer(o), Containing("[VisionTransformer] n_layers 0"));
}
