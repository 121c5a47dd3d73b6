#include "nn/relative_table.h"

#include <cmath>

#include "nn/attention.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::MusicRelative;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

constexpr nn::HeadShape heads{.n_heads = 3, .d_key = 4, .d_value = 5};

}  // namespace

TEST_CASE("MusicRelative: shape of the table") {
  Parent parent;
  const MusicRelative past(parent, heads, {.length = 6});
  CHECK(past.table.shape() == Shape{3, 6, 4});
  CHECK(past.table.requires_grad());
  CHECK(past.label() == "MusicRelative(length 6)");
  REQUIRE(parent.named_parameters().size() == 1);
  CHECK(parent.named_parameters()[0].name == "position.table");

  Parent other, third;
  const MusicRelative both(other, heads, {.length = 6, .shared_by_heads = true, .two_sided = true});
  CHECK(both.table.shape() == Shape{1, 11, 4});
  CHECK(both.label() == "MusicRelative(length 6, two-sided, shared by heads)");
  CHECK_THROWS_WITH(MusicRelative(third, heads, {}), "[MusicRelative] length 0; needs at least 1");
}

TEST_CASE("MusicRelative starts normal with deviation D^-1/2") {
  manual_seed(4);
  Parent parent;
  const MusicRelative position(parent, {.n_heads = 8, .d_key = 64, .d_value = 48}, {.length = 128});
  double total = 0, squares = 0;
  const auto values = position.table.to_vector<double>();
  for (const double x : values) {
    total += x;
    squares += x * x;
  }
  const double n = double(values.size()), variance = 1.0 / 64;
  CHECK(std::fabs(total / n) < 4 * std::sqrt(variance / n));
  CHECK(std::fabs(squares / n - variance) < 4 * variance * std::sqrt(2 / n));
}

TEST_CASE("MusicRelative adds its table to a call") {
  for (const bool two_sided : {false, true})
    for (const Beyond beyond : {Beyond::zero, Beyond::clip, Beyond::error}) {
      Parent parent;
      const MusicRelative position(parent, heads,
                                   {.length = 6, .two_sided = two_sided, .beyond = beyond});
      nn::AttentionCall call{zeros({1, 3, 2, 4}), zeros({1, 3, 7, 4}), zeros({1, 3, 7, 5}), {}};
      CHECK(call.n_queries() == 2);
      CHECK(call.n_keys() == 7);
      call.options.window = 5;
      position.apply(call);
      CHECK(call.options.keys.rows.same(position.table));
      CHECK(call.options.keys.zero_row == 5);
      CHECK(call.options.keys.beyond == beyond);
      CHECK(call.options.window == 5);
      CHECK_FALSE(call.options.values.defined());
    }
}

TEST_CASE("MusicRelative: the last row is a query's own position, the first the furthest back") {
  // One head of size 1 with q = 1, k = 0: the scores are the table's rows.
  Parent parent;
  const MusicRelative position(parent, {1, 1, 1}, {.length = 3});
  position.table.detach().copy_(tensor<float>({-2, -1, 0}).reshape({1, 3, 1}));
  nn::AttentionCall call{ones({1, 1, 4, 1}), zeros({1, 1, 4, 1}), zeros({1, 1, 4, 1}), {}};
  call.options.causal = true;
  position.apply(call);
  const auto w = attention_weights(call.q, call.k, call.options)[0][0].select(0, 3);
  // Scores of the last query: 0 beyond the table, −2, −1, 0.
  const double e[] = {1, std::exp(-2.0), std::exp(-1.0), 1};
  const double total = e[0] + e[1] + e[2] + e[3];
  for (int64_t j = 0; j < 4; ++j) CHECK(w[j].item() == Approx(e[j] / total).epsilon(1e-6));
}

TEST_CASE("MusicRelative: a policy matters only beyond the table") {
  const Tensor x = fixed_noise({1, 9, 8}, 1, f32);
  auto run = [&](int64_t length, Beyond beyond, int64_t l) {
    manual_seed(2);
    const nn::MultiHeadAttention layer(
        {.d_model = 8,
         .n_heads = 2,
         .position = nn::music_relative({.length = length, .beyond = beyond})});
    return layer(x.slice(1, 0, l), {.causal = true});
  };
  for (const int64_t l : {1, 5, 6})
    for (const Beyond beyond : {Beyond::clip, Beyond::error})
      CHECK(same_bits(run(6, beyond, l), run(6, Beyond::zero, l)));
  CHECK(!same_bits(run(6, Beyond::clip, 7), run(6, Beyond::zero, 7)));
  // Positions before the end of the table are the same all the same.
  CHECK(worst_error(run(6, Beyond::clip, 9).slice(1, 0, 6), run(6, Beyond::zero, 6)) < 1e-6);
  CHECK_THROWS_WITH(run(6, Beyond::error, 7),
                    Containing("key table reaches from -5 to 0, but relative positions from -6"));
}

TEST_CASE("MusicRelative follows the module's dtype") {
  nn::MultiHeadAttention layer(
      {.d_model = 8, .n_heads = 2, .position = nn::music_relative({.length = 4})});
  layer.to(f64);
  const Tensor y = layer(fixed_noise({1, 5, 8}, 1), {.causal = true});
  CHECK(y.dtype() == f64);
  y.backward(ones_like(y));
  const Tensor table = layer.named_parameters().back().tensor;
  CHECK(table.dtype() == f64);
  CHECK(table.grad().shape() == Shape{2, 4, 4});
}
