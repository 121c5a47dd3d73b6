// Stacks whose layers differ, and layers of an encoder with a bidirectional window or without a norm.
#include "nn/stack.h"

#include "nn/gradcheck.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::LayerOptions;
using nn::NormPlace;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

LayerOptions layer_options() {
  return {.d_model = 8,
          .attention = {.n_heads = 2, .position = nn::rotary()},
          .feed_forward = {.d_hidden = 12}};
}

}  // namespace

TEST_CASE("vary_layer changes the layers of a stack", "[transformer]") {
  manual_seed(4);
  nn::Encoder encoder({.n_layers = 3,
                       .layer = layer_options(),
                       .vary_layer =
                           [](int64_t i, LayerOptions& layer) {
                             layer.mixer_norm = i > 0;
                             if (i == 1) layer.attention.window = layer.attention.window_after = 2;
                           },
                       .final_norm = true});
  encoder.to(f64);
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  Tensor y = x;
  for (const nn::TransformerLayer& layer : encoder.layers) y = layer(y);
  CHECK(same_bits(encoder(x), (*encoder.norm)(y)));
  CHECK(encoder.layers[1].options.attention.window == 2);
  CHECK(encoder.layers[2].options.attention.window == 0);
  CHECK(encoder.layers[0].norm1.label() == "NoNorm(8)");
  CHECK(encoder.layers[1].norm1.label() == "LayerNorm(8)");
  nn::Decoder decoder(
      {.n_layers = 2, .layer = layer_options(), .vary_layer = [](int64_t i, LayerOptions& layer) {
         layer.feed_forward.d_hidden = 3 + i;
       }});
  CHECK(decoder.layers[1].feed_forward().options.d_hidden == 4);
}

TEST_CASE("a layer without mixer_norm adds attention of its input", "[transformer]") {
  LayerOptions options = layer_options();
  options.mixer_norm = false;
  manual_seed(4);
  nn::TransformerLayer layer(options);
  layer.to(f64);
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  const Tensor y = x + layer.self_attention()(x);
  CHECK(worst_error(layer(x), y + layer.feed_forward()((*layer.norm2)(y))) < 1e-12);
  CHECK(layer.norm1.parameters().empty());
  nn::gradcheck(layer, [&] { return mean(square(layer(x))); });
  const Tensors both = layer.norm1.add(x, y, {});
  CHECK(same_bits(both[0], x + y));
  CHECK(same_bits(both[1], x + y));
  const RandomKey key = next_random_key();
  CHECK(same_bits(layer.norm1.add(x, y, {0.5, key})[1], dropout_add(x, y, 0.5, key)));
  for (const NormPlace norm : {NormPlace::post, NormPlace::sandwich, NormPlace::output}) {
    options.norm = norm;
    CHECK_THROWS_WITH(nn::TransformerLayer(options),
                      Containing("no mixer_norm is for TransformerLayer with NormPlace::pre"));
  }
  options.norm = NormPlace::pre;
  CHECK_THROWS_WITH(nn::DecoderLayer(options), Containing("no mixer_norm is for TransformerLayer"));
  options.residual = nn::Residual::parallel;
  CHECK_THROWS_WITH(nn::TransformerLayer(options), Containing("Residual::sequential"));
}

TEST_CASE("window_after is a bidirectional window of attention", "[attention]") {
  nn::MultiHeadAttention::Options o{.d_model = 8, .n_heads = 2, .position = nn::rotary()};
  const auto make = [&] {
    manual_seed(4);
    auto layer = std::make_unique<nn::MultiHeadAttention>(o);
    layer->to(f64);
    return layer;
  };
  const auto open = make();
  o.window = 3;
  o.window_after = 2;
  const auto layer = make();
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  CHECK(same_bits((*layer)(x), (*open)(x, {.window = 3, .window_after = 2})));
  CHECK(same_bits((*layer)(x, {.window = 2, .window_after = 5}),
                  (*open)(x, {.window = 2, .window_after = 2})));
  CHECK(worst_error((*layer)(x, {.causal = true}), (*open)(x, {.causal = true, .window = 3})) <
        1e-12);
  // Padding may hide all keys in the window of a padded query; other rows do not change.
  const Tensor padding = tensor(std::vector<uint8_t>(18, 0), {2, 9});
  padding.slice(1, 3).fill_(1);
  const Tensor padded = (*layer)(x, {.key_padding = padding});
  CHECK(worst_error(padded.slice(1, 0, 3), (*layer)(x.slice(1, 0, 3))) < 1e-12);
  CHECK(sum(abs(padded)).item() < 1e3);
  CHECK((*layer).weights(x)[0][0][4][6].item() == 0);
  CHECK((*layer).weights(x)[0][0][4][5].item() > 0);
  o.window_after = -1;
  CHECK_THROWS_WITH(nn::MultiHeadAttention(o),
                    "[MultiHeadAttention] window_after -1; must be 0 (none) or more");
}
