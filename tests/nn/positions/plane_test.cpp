#include "nn/positions/plane.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "nn/positions/fire.h"
#include "ops/attention/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/reference/dense_bias.h"
#include "tests/reference/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/position_check.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using testing::call_of;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::Size;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

}  // namespace

TEST_CASE("SwinBias: parameter, initial values, label") {
  manual_seed(1);
  Parent parent;
  const nn::SwinBias position(parent, {.n_heads = 24}, {.height = 7, .width = 5});
  REQUIRE(parent.named_parameters().size() == 1);
  CHECK(parent.named_parameters()[0].name == "position.table");
  REQUIRE(position.table.shape() == Shape{13 * 9, 24});
  CHECK(position.label() == "SwinBias(7 x 5)");
  const double n = 13 * 9 * 24, variance = 0.02 * 0.02;
  CHECK(std::fabs(mean(position.table).item()) < 4 * std::sqrt(variance / n));
  CHECK(std::fabs(mean(square(position.table)).item() - variance) <
        4 * variance * std::sqrt(2 / n));
}

TEST_CASE("SwinBias equals a dense bias") {
  for (const Size window : {Size{1, 1}, {1, 5}, {4, 1}, {3, 2}, {4, 7}}) {
    Parent parent;
    nn::SwinBias position(parent, {.n_heads = 3}, {.height = window.m, .width = window.n});
    testing::stand_in(fixed_noise(position.table.shape(), 4), position.table);
    const int64_t cells = window.m * window.n;
    nn::AttentionInputs inputs = call_of(3, {cells, cells});
    position.apply(inputs);
    const Tensor want = reference::swin_bias(position.table, window.m, window.n);
    CHECK(worst_error(inputs.options.bias, want) == 0);
    CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options),
                      reference::attention(inputs.q, inputs.k, inputs.v, {.bias = want})) < 1e-12);
  }
}

TEST_CASE("SwinBias: gradients") {
  Parent parent;
  nn::SwinBias position(parent, {.n_heads = 2}, {.height = 2, .width = 3});
  const Tensor v = fixed_noise({1, 2, 6, 3}, 3);
  check_gradients(
      [&](const Tensors& in) {
        testing::stand_in(in[2], position.table);
        nn::AttentionInputs inputs{in[0], in[1], v, {}};
        position.apply(inputs);
        return attention(inputs.q, inputs.k, inputs.v, inputs.options);
      },
      {fixed_leaf({1, 2, 6, 4}, 1), fixed_leaf({1, 2, 6, 4}, 2), fixed_leaf({15, 2}, 4)});
}

TEST_CASE("GridRelative equals its formula, scaled like the products of the content") {
  for (const Size grid : {Size{1, 1}, {1, 5}, {4, 1}, {3, 2}, {4, 7}})
    for (const std::optional<double> scale : {std::optional<double>(), std::optional(0.3)}) {
      Parent parent;
      nn::GridRelative position(parent, {.n_heads = 3, .d_key = 5},
                                {.height = grid.m, .width = grid.n});
      testing::stand_in(fixed_noise({3, 2 * grid.m - 1, 5}, 4), position.height_table);
      testing::stand_in(fixed_noise({3, 2 * grid.n - 1, 5}, 5), position.width_table);
      const int64_t cells = grid.m * grid.n;
      nn::AttentionInputs inputs = call_of(3, {cells, cells}, 5);
      inputs.options.scale = scale;
      position.apply(inputs);
      const Tensor logits =
          reference::grid_logits(inputs.q, position.height_table, position.width_table);
      const Tensor want = logits * scale.value_or(1 / std::sqrt(5.0));
      CHECK(worst_error(inputs.options.bias, want) < 1e-14);
      CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options),
                        reference::attention(inputs.q, inputs.k, inputs.v,
                                             {.scale = scale, .bias = want})) < 1e-12);
    }
}

TEST_CASE("GridRelative: parameters and gradients") {
  manual_seed(1);
  Parent parent;
  nn::GridRelative position(parent, {.n_heads = 2, .d_key = 4}, {.height = 2, .width = 3});
  const auto parameters = parent.named_parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(str(parameters[0].name, parameters[0].tensor.shape()) == "position.height_table[2, 3, 4]");
  CHECK(str(parameters[1].name, parameters[1].tensor.shape()) == "position.width_table[2, 5, 4]");
  CHECK(position.label() == "GridRelative(2 x 3)");
  const Tensor v = fixed_noise({1, 2, 6, 3}, 3);
  check_gradients(
      [&](const Tensors& in) {
        testing::stand_in(in[2], position.height_table);
        testing::stand_in(in[3], position.width_table);
        nn::AttentionInputs inputs{in[0], in[1], v, {}};
        position.apply(inputs);
        return attention(inputs.q, inputs.k, inputs.v, inputs.options);
      },
      {fixed_leaf({1, 2, 6, 4}, 1), fixed_leaf({1, 2, 6, 4}, 2), fixed_leaf({2, 3, 4}, 4),
       fixed_leaf({2, 5, 4}, 5)});
}

TEST_CASE("class tokens have rows of their own in SwinBias and no term in GridRelative") {
  constexpr int64_t h = 2, w = 3, first = 2, cells = h * w;
  Parent parent, other;
  nn::SwinBias window(parent, {.n_heads = 3}, {.height = h, .width = w, .class_tokens = first});
  REQUIRE(window.table.shape() == Shape{3 * 5 + 3, 3});
  CHECK(window.label() == "SwinBias(2 x 3, class_tokens 2)");
  testing::stand_in(fixed_noise(window.table.shape(), 4), window.table);
  nn::AttentionInputs inputs = call_of(3, {first + cells, first + cells});
  window.apply(inputs);
  const Tensor bias = inputs.options.bias;
  CHECK(worst_error(bias.slice(1, first).slice(2, first),
                    reference::swin_bias(window.table.slice(0, 0, 15), h, w)) == 0);
  for (int64_t head = 0; head < 3; ++head)
    for (int64_t i = 0; i < first + cells; ++i)
      for (int64_t j = 0; j < first + cells; ++j) {
        if (i >= first && j >= first) continue;
        const int64_t row = 15 + (j >= first ? 0 : i >= first ? 1 : 2);
        CHECK(bias[head][i][j].item() == window.table[row][head].item());
      }

  nn::GridRelative grid(other, {.n_heads = 3, .d_key = 4},
                        {.height = h, .width = w, .class_tokens = first});
  testing::stand_in(fixed_noise({3, 3, 4}, 4), grid.height_table);
  testing::stand_in(fixed_noise({3, 5, 4}, 5), grid.width_table);
  nn::AttentionInputs call = call_of(3, {first + cells, first + cells});
  grid.apply(call);
  const Tensor logits =
      reference::grid_logits(call.q.slice(2, first), grid.height_table, grid.width_table);
  CHECK(worst_error(call.options.bias.slice(2, first).slice(3, first), logits * 0.5) < 1e-14);
  CHECK(max(abs(call.options.bias.slice(2, 0, first))).item() == 0);
  CHECK(max(abs(call.options.bias.slice(3, 0, first))).item() == 0);
}

TEST_CASE("Rotary2d equals its formula") {
  for (const Size plane : {Size{1, 1}, {1, 5}, {4, 1}, {3, 2}, {4, 7}})
    for (const int64_t first : {0, 1, 3}) {
      Parent parent;
      const nn::Rotary2d position(parent, {.n_heads = 3, .d_key = 8},
                                  {.height = plane.m, .width = plane.n, .class_tokens = first});
      CHECK(parent.parameters().empty());
      const int64_t tokens = first + plane.m * plane.n;
      nn::AttentionInputs inputs = call_of(3, {tokens, tokens}, 8);
      const Tensor q = inputs.q, k = inputs.k;
      position.apply(inputs);
      for (const auto& [got, from] : {std::pair(inputs.q, q), std::pair(inputs.k, k)}) {
        CHECK(same_bits(got.slice(2, 0, first), from.slice(2, 0, first)));
        CHECK(worst_error(got.slice(2, first),
                          reference::rotated_2d(from.slice(2, first), plane.n, 100)) < 1e-13);
      }
    }
}

TEST_CASE("Rotary2d: products depend on the differences of rows and columns only") {
  constexpr int64_t h = 4, w = 5;
  for (const RotaryPairing pairing : {RotaryPairing::half, RotaryPairing::interleaved}) {
    Parent parent;
    const nn::Rotary2d position(parent, {.n_heads = 1, .d_key = 8},
                                {.height = h, .width = w, .base = 30, .pairing = pairing});
    // Every cell has the same query and the same key.
    const Shape all{1, 1, h * w, 8};
    nn::AttentionInputs inputs{fixed_noise({1, 1, 1, 8}, 1).expand(all),
                               fixed_noise({1, 1, 1, 8}, 2).expand(all),
                               fixed_noise({1, 1, h * w, 3}, 3),
                               {}};
    position.apply(inputs);
    const Tensor products = matmul(inputs.q, inputs.k.transpose(2, 3)).reshape({h, w, h, w});
    for (int64_t y = 1; y < h; ++y)
      for (int64_t x = 1; x < w; ++x)
        CHECK(worst_error(products[y][x].slice(0, 1).slice(1, 1),
                          products[y - 1][x - 1].slice(0, 0, h - 1).slice(1, 0, w - 1)) < 1e-13);
    CHECK(worst_error(products[0][0], products[1][0]) > 1e-2);
  }
}

TEST_CASE("Rotary2d: gradients, bf16 and errors") {
  Parent parent;
  const nn::Rotary2d position(parent, {.n_heads = 2, .d_key = 4},
                              {.height = 2, .width = 3, .class_tokens = 1});
  CHECK(position.label() == "Rotary2d(2 x 3, class_tokens 1)");
  const Tensor v = fixed_noise({1, 2, 7, 3}, 3);
  check_gradients(
      [&](const Tensors& in) {
        nn::AttentionInputs inputs{in[0], in[1], v, {}};
        position.apply(inputs);
        return attention(inputs.q, inputs.k, inputs.v, inputs.options);
      },
      {fixed_leaf({1, 2, 7, 4}, 1), fixed_leaf({1, 2, 7, 4}, 2)});
  nn::AttentionInputs low = call_of(2, {7, 7}, 4, bf16);
  position.apply(low);
  CHECK(low.q.dtype() == bf16);
  Parent other;
  CHECK_THROWS_WITH(nn::Rotary2d(other, {.n_heads = 2, .d_key = 6}, {.height = 2, .width = 3}),
                    "[Rotary2d] heads with 6 features; must be a multiple of 4");
  CHECK_THROWS_WITH(
      nn::Rotary2d(other, {.n_heads = 2, .d_key = 4}, {.height = 2, .width = 3, .base = 0}),
      Containing("[Rotary2d] base 0"));
  CHECK_THROWS_WITH(nn::Rotary2d(other, {.n_heads = 2, .d_key = 4},
                                 {.height = 2, .width = 3, .class_tokens = -1}),
                    "[Rotary2d] height 2, width 3, class_tokens -1; height and width must be at "
                    "least 1, class_tokens not negative");
}

TEST_CASE("sinusoids_2d has the sinusoid of the column, then that of the row") {
  for (const nn::Sinusoid layout :
       {nn::Sinusoid::interleaved, nn::Sinusoid::concatenated, nn::Sinusoid::tensor2tensor}) {
    const Tensor table = nn::sinusoids_2d(3, 5, 8, layout, {.dtype = f64});
    REQUIRE(table.shape() == Shape{15, 8});
    const Tensor column = nn::sinusoids(5, 4, layout, 0, 1, {.dtype = f64});
    const Tensor row = nn::sinusoids(3, 4, layout, 0, 1, {.dtype = f64});
    for (int64_t cell = 0; cell < 15; ++cell)
      CHECK(same_bits(table[cell], cat({column[cell % 5], row[cell / 5]})));
  }
  CHECK_THROWS_WITH(nn::sinusoids_2d(3, 5, 7, nn::Sinusoid::interleaved),
                    "[sinusoids_2d] height 3, width 5, d 7; must be at least 1, and d even");
}

TEST_CASE("positions in a plane work in a layer, and another size is an error") {
  for (const nn::MakePositionalEncoding& position :
       {nn::swin_bias({.height = 2, .width = 3}), nn::grid_relative({.height = 2, .width = 3})}) {
    const auto layer = testing::layer_with(position);
    const Tensor x = fixed_noise({2, 6, 8}, 1), y = (*layer)(x);
    CHECK(y.shape() == Shape{2, 6, 8});
    CHECK(same_bits((*layer)(x.slice(0, 1))[0], y[1]));
    CHECK_THROWS_WITH((*layer)(fixed_noise({1, 5, 8}, 1)),
                      Catch::Matchers::EndsWith("5 queries and 5 keys; must be 2 x 3 = 6 each"));
    CHECK_THROWS_WITH(
        (*layer)(fixed_noise({1, 7, 8}, 1)),
        Containing("must be 2 x 3 = 6 each; set class_tokens = 1 if the first token is "
                   "a class token"));
    CHECK_THROWS_WITH((*layer)(fixed_noise({1, 6, 8}, 1), fixed_noise({1, 4, 8}, 1), {}),
                      Containing("6 queries and 4 keys"));
  }
  Parent parent;
  CHECK_THROWS_WITH(nn::SwinBias(parent, {.n_heads = 1}, {.height = 3}),
                    "[SwinBias] height 3, width 0, class_tokens 0; height and width must be at "
                    "least 1, class_tokens not negative");
  CHECK_THROWS_WITH(nn::GridRelative(parent, {.n_heads = 1, .d_key = 1}, {.width = 3}),
                    "[GridRelative] height 0, width 3, class_tokens 0; height and width must be at "
                    "least 1, class_tokens not negative");
}

TEST_CASE("every position that adds a dense bias keeps one that the caller sets") {
  for (const nn::MakePositionalEncoding& position :
       {nn::fire(), nn::swin_bias({.height = 2, .width = 3}),
        nn::grid_relative({.height = 2, .width = 3})}) {
    const auto layer = testing::layer_with(position);
    const Tensor x = fixed_noise({2, 6, 8}, 1), own = fixed_noise({2, 4, 6, 6}, 2);
    nn::AttentionInputs alone = layer->project(x, x, {});
    for (const auto& [name, child] : layer->children())
      if (const auto* own_position = dynamic_cast<const nn::PositionalEncoding*>(child))
        own_position->apply(alone);
    REQUIRE(alone.options.bias.defined());
    nn::AttentionInputs inputs = layer->project(x, x, {});
    inputs.options.bias = own;
    const Tensor y = layer->attend(inputs);
    AttentionOptions both;
    both.bias = alone.options.bias + own;
    const Tensor heads = reference::attention(inputs.q, inputs.k, inputs.v, both);
    CHECK(worst_error(y, layer->out(heads.transpose(1, 2).flatten(2))) < 1e-12);
    CHECK(worst_error(y, (*layer)(x)) > 1e-3);
  }
}

TEST_CASE("Swin's shifted windows, with segments as the mask, agree with the reference") {
  constexpr int64_t heads = 4, size = 2, shift = 1, h = 4, w = 6, windows = (h / size) * (w / size);
  const auto layer = testing::layer_with(nn::swin_bias({.height = size, .width = size}));
  const Tensor image = fixed_noise({h, w, 8}, 1);

  // Rolled by `shift` and cut into windows [windows, size², 8]: the image cell of each entry.
  std::vector<int64_t> cells;
  for (int64_t top = 0; top < h; top += size)
    for (int64_t left = 0; left < w; left += size)
      for (int64_t y = 0; y < size; ++y)
        for (int64_t x = 0; x < size; ++x)
          cells.push_back((top + y + shift) % h * w + (left + x + shift) % w);
  const Tensor order = tensor(cells, {h * w});
  const Tensor cut = index_select(image.flatten(0, 1), 0, order).reshape({windows, size * size, 8});

  // Cells from opposite edges of the image are hidden from each other: they have other segments.
  std::vector<int64_t> regions;
  for (const int64_t cell : cells)
    regions.push_back(2 * int64_t(cell / w < shift) + int64_t(cell % w < shift));
  const Tensor segments = tensor(regions, {windows, size * size});
  const nn::AttentionInputs inputs = layer->project(cut, cut, {.segments = segments});
  const Tensor shifted = layer->attend(inputs).reshape({h * w, 8});
  const Tensor got = zeros({h * w, 8}, {.dtype = f64});
  for (int64_t i = 0; i < h * w; ++i) got[cells[size_t(i)]].copy_(shifted[i].detach());

  // Heads of 6 features for keys and 3 for values; two query heads share a key head.
  const auto heads_of = [&](const nn::Linear& projection, int64_t n, int64_t d) {
    const Tensor y = projection(image).reshape({h, w, n, d}).permute({2, 0, 1, 3});
    return n == heads ? y : stack({y[0], y[0], y[1], y[1]});
  };
  const Tensor q = heads_of(layer->q, 4, 6), k = heads_of(layer->k, 2, 6);
  const Tensor v = cat({heads_of(layer->v, 2, 3), zeros({heads, h, w, 3}, {.dtype = f64})}, 3);
  const Tensor table = layer->get_parameter("position.table");
  const Tensor y = reference::shifted_window_attention(q, k, v, table, size, shift).slice(3, 0, 3);
  CHECK(worst_error(got, layer->out(y.permute({1, 2, 0, 3}).reshape({h * w, heads * 3}))) < 1e-12);
}
