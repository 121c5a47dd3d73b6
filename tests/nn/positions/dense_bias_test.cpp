#include "nn/positions/dense_bias.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/reference/dense_bias.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/position_check.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

struct Size {
  int64_t m, n;
};

nn::AttentionInputs call_of(int64_t heads, Size size, int64_t d = 4, DType dtype = f64) {
  return {fixed_noise({2, heads, size.m, d}, 1, dtype),
          fixed_noise({2, heads, size.n, d}, 2, dtype),
          fixed_noise({2, heads, size.n, 3}, 3, dtype),
          {}};
}

// A Fire in f64 with parameters other than the initial ones.
struct SomeFire {
  explicit SomeFire(double threshold, double c = 0.7, double multiplier = 1.3)
      : position(parent, {.n_heads = 3}, {.hidden = 5, .threshold = threshold}) {
    parent.to(f64);
    uint64_t stream = 20;
    for (const Tensor& p : parent.parameters()) p.detach().copy_(fixed_noise(p.shape(), ++stream));
    position.c.detach().fill_(c);
    position.multiplier.detach().fill_(multiplier);
  }
  Parent parent;
  nn::Fire position;
};

}  // namespace

// ---------------------------------------------------------------------------------------- FIRE

TEST_CASE("Fire: parameters, initial values, label") {
  Parent parent, other;
  const nn::Fire position(parent, {.n_heads = 3}, {});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parent.named_parameters())
    names.push_back(str(name, " ", tensor.shape()));
  CHECK(names ==
        std::vector<std::string>{"position.c [1]", "position.multiplier [1]",
                                 "position.linear1.weight [32, 1]", "position.linear1.bias [32]",
                                 "position.linear2.weight [3, 32]", "position.linear2.bias [3]"});
  CHECK(position.c.item() == double(0.1f));
  CHECK(position.multiplier.item() == 1);
  CHECK(position.label() == "Fire(hidden 32, threshold 512)");
  CHECK_THROWS_WITH(
      nn::Fire(other, {.n_heads = 3}, {.threshold = -1}),
      "[Fire] hidden 32, threshold -1; hidden must be at least 1, threshold not negative");
}

TEST_CASE("Fire equals its formula") {
  // The threshold is above, within and below the positions; signs cancel in the formula.
  const SomeFire fires[] = {SomeFire(512), SomeFire(4), SomeFire(0), SomeFire(4, -0.7, -1.3)};
  for (const SomeFire& fire : fires)
    for (const Size size : {Size{1, 1}, {7, 7}, {3, 9}, {1, 9}, {9, 3}, {33, 70}}) {
      const nn::Fire& f = fire.position;
      nn::AttentionInputs inputs = call_of(3, size);
      f.apply(inputs);
      const Tensor want = reference::fire_bias({.c = f.c.item(),
                                                .multiplier = f.multiplier.item(),
                                                .threshold = f.options.threshold,
                                                .weight1 = f.linear1.weight,
                                                .bias1 = f.linear1.bias,
                                                .weight2 = f.linear2.weight,
                                                .bias2 = f.linear2.bias},
                                               size.m, size.n);
      CHECK(worst_error(inputs.options.bias, want) < 1e-13);
      for (const bool causal : {false, true}) {
        if (causal && size.m > size.n) continue;
        inputs.options.mask.causal = causal;
        CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options),
                          reference::attention(inputs.q, inputs.k, inputs.v,
                                               {.mask = {.causal = causal}, .bias = want})) <
              1e-12);
      }
    }
}

TEST_CASE("Fire counts positions from the first key") {
  const SomeFire fire(4);
  nn::AttentionInputs whole = call_of(3, {20, 20}), last = call_of(3, {3, 9});
  fire.position.apply(whole);
  last.first_position = 11;
  fire.position.apply(last);
  CHECK(worst_error(last.options.bias, whole.options.bias.slice(1, 17).slice(2, 11)) < 1e-14);
}

TEST_CASE("Fire: gradients") {
  for (const double threshold : {2.0, 512.0}) {
    SomeFire fire(threshold);
    nn::Fire& f = fire.position;
    Tensors inputs{fixed_leaf({1, 3, 3, 4}, 1), fixed_leaf({1, 3, 7, 4}, 2)};
    for (const Tensor& p : fire.parent.parameters())
      inputs.push_back(p.detach().clone().set_requires_grad());
    const Tensor v = fixed_noise({1, 3, 7, 3}, 3);
    check_gradients(
        [&](const Tensors& in) {
          testing::stand_in(in[2], f.c);
          testing::stand_in(in[3], f.multiplier);
          testing::stand_in(in[4], f.linear1.weight);
          testing::stand_in(in[5], f.linear1.bias);
          testing::stand_in(in[6], f.linear2.weight);
          testing::stand_in(in[7], f.linear2.bias);
          nn::AttentionInputs call{in[0], in[1], v, {}};
          call.options.mask.causal = true;
          f.apply(call);
          return attention(call.q, call.k, call.v, call.options);
        },
        inputs);
  }
}

TEST_CASE("Fire in bf16 computes distances in f32") {
  // Below L0 the bias depends only on the distance, also where bf16 would round to multiples of 4.
  SomeFire fire(5000);
  fire.parent.to(bf16);
  nn::AttentionInputs near = call_of(3, {1, 10}, 4, bf16), far = call_of(3, {1, 700}, 4, bf16);
  fire.position.apply(near);
  fire.position.apply(far);
  CHECK(near.options.bias.dtype() == bf16);
  const Tensor last = far.options.bias.slice(2, 690);
  if (default_device().is_cuda())  // other sizes have another order of sums
    CHECK(worst_error(last, near.options.bias) < 0x1p-7);
  else
    CHECK(same_bits(last, near.options.bias));
  CHECK(attention(far.q, far.k, far.v, far.options).dtype() == bf16);
}

TEST_CASE("Fire works in a decoder") {
  testing::check_causal_position(nn::fire());
  testing::check_causal_position(nn::fire({.hidden = 3, .threshold = 5}));
}

// ------------------------------------------------------------------------------ two dimensions

TEST_CASE("WindowBias: parameter, initial values, label") {
  manual_seed(1);
  Parent parent;
  const nn::WindowBias position(parent, {.n_heads = 24}, {.height = 7, .width = 5});
  REQUIRE(parent.named_parameters().size() == 1);
  CHECK(parent.named_parameters()[0].name == "position.table");
  REQUIRE(position.table.shape() == Shape{13 * 9, 24});
  CHECK(position.label() == "WindowBias(7 x 5)");
  const double n = 13 * 9 * 24, variance = 0.02 * 0.02;
  CHECK(std::fabs(mean(position.table).item()) < 4 * std::sqrt(variance / n));
  CHECK(std::fabs(mean(square(position.table)).item() - variance) <
        4 * variance * std::sqrt(2 / n));
}

TEST_CASE("WindowBias equals a dense bias") {
  for (const Size window : {Size{1, 1}, {1, 5}, {4, 1}, {3, 2}, {4, 7}}) {
    Parent parent;
    nn::WindowBias position(parent, {.n_heads = 3}, {.height = window.m, .width = window.n});
    testing::stand_in(fixed_noise(position.table.shape(), 4), position.table);
    const int64_t cells = window.m * window.n;
    nn::AttentionInputs inputs = call_of(3, {cells, cells});
    position.apply(inputs);
    const Tensor want = reference::window_bias(position.table, window.m, window.n);
    CHECK(worst_error(inputs.options.bias, want) == 0);
    CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options),
                      reference::attention(inputs.q, inputs.k, inputs.v, {.bias = want})) < 1e-12);
  }
}

TEST_CASE("WindowBias: gradients") {
  Parent parent;
  nn::WindowBias position(parent, {.n_heads = 2}, {.height = 2, .width = 3});
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

TEST_CASE("windows and grids work in a layer, and another size is an error") {
  for (const nn::MakePositionalEncoding& position :
       {nn::window_bias({.height = 2, .width = 3}), nn::grid_relative({.height = 2, .width = 3})}) {
    const auto layer = testing::layer_with(position);
    const Tensor x = fixed_noise({2, 6, 8}, 1), y = (*layer)(x);
    CHECK(y.shape() == Shape{2, 6, 8});
    CHECK(same_bits((*layer)(x.slice(0, 1))[0], y[1]));
    CHECK_THROWS_WITH(
        (*layer)(fixed_noise({1, 5, 8}, 1)),
        Containing(
            "5 queries and 5 keys; must be 2 x 3 = 6 each (no class token: use Pooling::mean)"));
    CHECK_THROWS_WITH((*layer)(fixed_noise({1, 6, 8}, 1), fixed_noise({1, 4, 8}, 1), {}),
                      Containing("6 queries and 4 keys"));
  }
  Parent parent;
  CHECK_THROWS_WITH(nn::WindowBias(parent, {.n_heads = 1}, {.height = 3}),
                    "[WindowBias] height 3, width 0; both must be at least 1");
  CHECK_THROWS_WITH(nn::GridRelative(parent, {.n_heads = 1, .d_key = 1}, {.width = 3}),
                    "[GridRelative] height 0, width 3; both must be at least 1");
}

TEST_CASE("every position that adds a dense bias keeps one that the caller sets") {
  for (const nn::MakePositionalEncoding& position :
       {nn::fire(), nn::window_bias({.height = 2, .width = 3}),
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

TEST_CASE("Swin's shifted windows, with a mask set by the caller, agree with the reference") {
  constexpr int64_t heads = 4, size = 2, shift = 1, h = 4, w = 6, windows = (h / size) * (w / size);
  const auto layer = testing::layer_with(nn::window_bias({.height = size, .width = size}));
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

  // Cells from opposite edges of the image are hidden from each other: [windows, 1, size², size²].
  Tensor mask = zeros({windows, 1, size * size, size * size}, {.dtype = f64});
  for (int64_t n = 0; n < windows; ++n)
    for (int64_t i = 0; i < size * size; ++i)
      for (int64_t j = 0; j < size * size; ++j) {
        const int64_t a = cells[size_t(n * size * size + i)],
                      b = cells[size_t(n * size * size + j)];
        if (std::abs(a / w - b / w) >= size || std::abs(a % w - b % w) >= size)
          mask[n][0][i][j].fill_(-INFINITY);
      }
  nn::AttentionInputs inputs = layer->project(cut, cut, {});
  inputs.options.bias = mask;
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
