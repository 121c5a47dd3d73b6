#include "nn/positions/relative_table.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/disentangled.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::BertRelative;
using nn::InklingRelative;
using nn::MusicRelative;
using nn::ShawRelative;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

constexpr nn::HeadShape heads{.n_heads = 3, .d_key = 4, .d_value = 5, .d_model = 6};

// Attention inputs in f64 for `heads`, with `groups` key heads.
nn::AttentionInputs make_call(int64_t m, int64_t n, int64_t groups = 3) {
  return {fixed_noise({2, 3, m, 4}, 1),
          fixed_noise({2, groups, n, 4}, 2),
          fixed_noise({2, groups, n, 5}, 3),
          {}};
}

Tensor output(const nn::AttentionInputs& inputs) {
  return attention(inputs.q, inputs.k, inputs.v, inputs.options);
}

}  // namespace

TEST_CASE("MusicRelative: shape of the table") {
  Parent parent;
  const MusicRelative past(parent, heads, {.max_length = 6});
  CHECK(past.table.shape() == Shape{3, 6, 4});
  CHECK(past.table.requires_grad());
  CHECK(past.label() == "MusicRelative(max_length 6)");
  REQUIRE(parent.named_parameters().size() == 1);
  CHECK(parent.named_parameters()[0].name == "position.table");

  Parent other, third;
  const MusicRelative both(other, heads,
                           {.max_length = 6, .shared_by_heads = true, .bidirectional = true});
  CHECK(both.table.shape() == Shape{1, 11, 4});
  CHECK(both.label() == "MusicRelative(max_length 6, bidirectional, shared by heads)");
  CHECK_THROWS_WITH(MusicRelative(third, heads, {}),
                    "[MusicRelative] max_length 0; needs at least 1");
}

TEST_CASE("MusicRelative is initialized normal with standard deviation D^-1/2") {
  manual_seed(4);
  Parent parent;
  const MusicRelative position(parent, {.n_heads = 8, .d_key = 64, .d_value = 48},
                               {.max_length = 128});
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

TEST_CASE("MusicRelative adds its table to the attention inputs") {
  for (const bool bidirectional : {false, true})
    for (const OutOfRange out_of_range : {OutOfRange::zero, OutOfRange::clip, OutOfRange::error}) {
      Parent parent;
      const MusicRelative position(
          parent, heads,
          {.max_length = 6, .bidirectional = bidirectional, .out_of_range = out_of_range});
      nn::AttentionInputs inputs{zeros({1, 3, 2, 4}), zeros({1, 3, 7, 4}), zeros({1, 3, 7, 5}), {}};
      CHECK(inputs.n_queries() == 2);
      CHECK(inputs.n_keys() == 7);
      inputs.options.mask.causal = !bidirectional;
      inputs.options.mask.window = 5;
      position.apply(inputs);
      CHECK(inputs.options.relative_keys.rows.same(position.table));
      CHECK(inputs.options.relative_keys.zero_row == 5);
      CHECK(inputs.options.relative_keys.out_of_range == out_of_range);
      CHECK(inputs.options.mask.window == 5);
      CHECK_FALSE(inputs.options.relative_values.defined());
    }
}

TEST_CASE(
    "MusicRelative: the last row is for a query's own position, the first for the furthest back") {
  // One head of dimension 1 with q = 1, k = 0: the scores are the rows of the table.
  Parent parent;
  const MusicRelative position(parent, {1, 1, 1}, {.max_length = 3});
  position.table.detach().copy_(tensor<float>({-2, -1, 0}).reshape({1, 3, 1}));
  nn::AttentionInputs inputs{ones({1, 1, 4, 1}), zeros({1, 1, 4, 1}), zeros({1, 1, 4, 1}), {}};
  inputs.options.mask.causal = true;
  position.apply(inputs);
  const auto w = attention_weights(inputs.q, inputs.k, inputs.options)[0][0].select(0, 3);
  // Scores of the last query: 0 out of range, then −2, −1, 0.
  const double e[] = {1, std::exp(-2.0), std::exp(-1.0), 1};
  const double total = e[0] + e[1] + e[2] + e[3];
  for (int64_t j = 0; j < 4; ++j) CHECK(w[j].item() == Approx(e[j] / total).epsilon(1e-6));
}

TEST_CASE("MusicRelative: the out-of-range policy matters only past the table") {
  const Tensor x = fixed_noise({1, 9, 8}, 1, f32);
  auto run = [&](int64_t length, OutOfRange out_of_range, int64_t l) {
    manual_seed(2);
    const nn::MultiHeadAttention layer(
        {.d_model = 8,
         .n_heads = 2,
         .position = nn::music_relative({.max_length = length, .out_of_range = out_of_range})});
    return layer(x.slice(1, 0, l), {.causal = true});
  };
  for (const int64_t l : {1, 5, 6})
    for (const OutOfRange out_of_range : {OutOfRange::clip, OutOfRange::error})
      CHECK(same_bits(run(6, out_of_range, l), run(6, OutOfRange::zero, l)));
  CHECK(!same_bits(run(6, OutOfRange::clip, 7), run(6, OutOfRange::zero, 7)));
  // Earlier positions have the same results.
  CHECK(worst_error(run(6, OutOfRange::clip, 9).slice(1, 0, 6), run(6, OutOfRange::zero, 6)) <
        1e-6);
  CHECK_THROWS_WITH(run(6, OutOfRange::error, 7),
                    Containing("key table reaches from -5 to 0, but relative positions from -6"));
}

TEST_CASE("MusicRelative: a table of the past needs a causal mask") {
  const Tensor x = fixed_noise({1, 4, 8}, 1, f32);
  const auto error = [&](const nn::MusicRelativeOptions& o, const AttentionMask& mask) {
    const nn::MultiHeadAttention layer(
        {.d_model = 8, .n_heads = 2, .position = nn::music_relative(o)});
    return testing::error_of<Error>([&] { layer(x, mask); });
  };
  const std::string words =
      "[MusicRelative] the table has no rows for keys after the query; use a causal mask, or set "
      "bidirectional = true";
  CHECK(error({.max_length = 8}, {}) == words);
  CHECK(error({.max_length = 8, .out_of_range = OutOfRange::clip}, {}) == words);
  CHECK(error({.max_length = 8, .bidirectional = true}, {}) == "(nothing thrown)");
  CHECK(error({.max_length = 8}, {.causal = true}) == "(nothing thrown)");
}

TEST_CASE("MusicRelative follows the module's dtype") {
  nn::MultiHeadAttention layer(
      {.d_model = 8, .n_heads = 2, .position = nn::music_relative({.max_length = 4})});
  layer.to(f64);
  const Tensor y = layer(fixed_noise({1, 5, 8}, 1), {.causal = true});
  CHECK(y.dtype() == f64);
  y.backward(ones_like(y));
  const Tensor table = layer.named_parameters().back().tensor;
  CHECK(table.dtype() == f64);
  CHECK(table.grad().shape() == Shape{2, 4, 4});
}

TEST_CASE("ShawRelative: shape of the tables") {
  Parent parent;
  const ShawRelative base(parent, heads, {.max_distance = 6});
  CHECK(base.keys.shape() == Shape{3, 13, 4});
  CHECK(base.values.shape() == Shape{3, 13, 5});
  CHECK(base.label() == "ShawRelative(max_distance 6)");
  REQUIRE(parent.named_parameters().size() == 2);
  CHECK(parent.named_parameters()[0].name == "position.keys");
  CHECK(parent.named_parameters()[1].name == "position.values");

  Parent other, third, fourth;
  const ShawRelative keys(other, heads,
                          {.max_distance = 0, .values = false, .shared_by_heads = true});
  CHECK(keys.keys.shape() == Shape{1, 1, 4});
  CHECK_FALSE(keys.values.defined());
  CHECK(keys.label() == "ShawRelative(max_distance 0, keys only, shared by heads)");
  CHECK(other.parameter_count() == 4);
  CHECK_THROWS_WITH(ShawRelative(third, heads, {.max_distance = -1}),
                    "[ShawRelative] max_distance -1; must not be negative");
  // The paper's base and big models: six layers each for encoder and decoder.
  CHECK(12 * ShawRelative(third, {8, 64, 64}, {}).parameter_count() == 405'504);
  CHECK(12 * ShawRelative(fourth, {16, 64, 64}, {.max_distance = 8, .shared_by_heads = true})
                 .parameter_count() ==
        26'112);
}

TEST_CASE("ShawRelative is initialized as xavier_uniform_ of each head's [2k + 1, D]") {
  manual_seed(4);
  Parent parent;
  const ShawRelative position(parent, {.n_heads = 32, .d_key = 6, .d_value = 54},
                              {.max_distance = 5});
  for (const Tensor& table : {position.keys, position.values}) {
    const double bound = std::sqrt(6.0 / double(11 + table.size(2)));
    CHECK(max(abs(table)).item() <= bound);
    CHECK(max(abs(table)).item() > 0.99 * bound);
    // The variance of a uniform's square is 4/45 of its bound to the fourth power.
    CHECK(std::fabs(mean(square(table)).item() - bound * bound / 3) <
          4 * bound * bound * std::sqrt(4.0 / 45 / double(table.numel())));
  }
  CHECK(!same_bits(position.keys[0], position.keys[1]));
}

TEST_CASE("ShawRelative adds its tables to the attention inputs") {
  for (const bool values : {false, true}) {
    Parent parent;
    const ShawRelative position(parent, heads, {.max_distance = 2, .values = values});
    nn::AttentionInputs inputs = make_call(2, 7);
    inputs.options.mask.window = 5;
    position.apply(inputs);
    CHECK(inputs.options.relative_keys.rows.same(position.keys));
    CHECK(inputs.options.relative_keys.zero_row == 2);
    CHECK(inputs.options.relative_keys.out_of_range == OutOfRange::clip);
    CHECK(inputs.options.relative_values.defined() == values);
    CHECK(inputs.options.mask.window == 5);
    if (!values) continue;
    CHECK(inputs.options.relative_values.rows.same(position.values));
    CHECK(inputs.options.relative_values.zero_row == 2);
    CHECK(inputs.options.relative_values.out_of_range == OutOfRange::clip);
  }
}

TEST_CASE("BertRelative: shape of the table, and errors past its end") {
  manual_seed(4);
  Parent parent, other, third;
  const BertRelative position(parent, {.n_heads = 2, .d_key = 64, .d_value = 64},
                              {.max_length = 70});
  CHECK(position.table.shape() == Shape{1, 139, 64});
  CHECK(parent.named_parameters().at(0).name == "position.table");
  CHECK(position.label() == "BertRelative(max_length 70)");
  const double n = double(position.table.numel()), variance = 0.02 * 0.02;
  CHECK(std::fabs(mean(position.table).item()) < 4 * std::sqrt(variance / n));
  CHECK(std::fabs(var(position.table).item() - variance) < 4 * variance * std::sqrt(2 / n));

  const BertRelative both(other, heads, {.max_length = 6, .keys_too = true});
  other.to(f64);
  CHECK(both.label() == "BertRelative(max_length 6, keys too)");
  CHECK_THROWS_WITH(BertRelative(third, heads, {}),
                    "[BertRelative] max_length 0; needs at least 1");
  nn::AttentionInputs fits = make_call(6, 6), longer = make_call(7, 7), past = make_call(1, 7);
  both.apply(fits);
  CHECK(output(fits).shape() == Shape{2, 3, 6, 5});
  both.apply(longer);
  CHECK_THROWS_WITH(output(longer), Containing("key table reaches from -5 to 5, but relative "
                                               "positions from -6 to 6 are needed"));
  both.apply(past);
  past.options.mask.causal = true;
  CHECK_THROWS_WITH(output(past), Containing("relative positions from -6 to 0 are needed"));
}

TEST_CASE("BertRelative agrees with loops, for queries and for keys") {
  for (const bool keys_too : {false, true}) {
    Parent parent;
    const BertRelative position(parent, heads, {.max_length = 9, .keys_too = keys_too});
    parent.to(f64);
    position.table.detach().copy_(fixed_noise({1, 17, 4}, 5));
    // Hugging Face's index: l − r + P − 1 for query l and key r, in a table of reverse order.
    auto row = [](int64_t distance) { return 8 - distance; };
    for (const auto& [m, n] : {std::pair{1, 1}, {2, 2}, {9, 9}, {3, 9}, {1, 9}, {9, 4}})
      for (const int64_t groups : {1, 3})
        for (const double scale : {0.0, 0.7}) {
          nn::AttentionInputs inputs = make_call(m, n, groups);
          if (scale > 0) inputs.options.scale = scale;
          inputs.options.bias = fixed_noise({m, n}, 4);
          AttentionOptions o = inputs.options;
          o.bias = o.bias + reference::disentangled_bias(inputs.q, inputs.k, position.table, row,
                                                         keys_too ? position.table : Tensor(), row,
                                                         o.scale.value_or(0.5));
          position.apply(inputs);
          CHECK(worst_error(output(inputs), reference::attention(inputs.q, inputs.k, inputs.v, o)) <
                1e-13);
        }
  }
}

TEST_CASE("InklingRelative: shapes, initial values and errors") {
  manual_seed(4);
  Parent parent;
  const InklingRelative past(parent, {.n_heads = 4, .d_key = 8, .d_value = 8, .d_model = 24}, {});
  CHECK(past.table.shape() == Shape{1, 1024, 16});
  CHECK(past.r.weight.shape() == Shape{64, 24});
  CHECK(past.label() == "InklingRelative(dim 16, extent 1024)");
  const auto values = past.table.to_vector<double>();
  double squares = 0;
  for (const double x : values) squares += x * x;
  CHECK(squares / double(values.size()) == Approx(4e-4).epsilon(0.05));

  Parent other, third;
  const InklingRelative both(other, heads,
                             {.dim = 3, .extent = 6, .bidirectional = true, .log_floor = 9});
  CHECK(both.table.shape() == Shape{1, 11, 3});
  CHECK(both.label() == "InklingRelative(dim 3, extent 6, bidirectional, log floor 9)");
  CHECK_THROWS_WITH(InklingRelative(third, heads, {.dim = 0}),
                    "[InklingRelative] dim 0, extent 1024; both must be at least 1");
  CHECK_THROWS_WITH(InklingRelative(third, heads, {.extent = 0}),
                    "[InklingRelative] dim 16, extent 0; both must be at least 1");
  for (const nn::InklingRelativeOptions& wrong :
       {nn::InklingRelativeOptions{.log_floor = -1}, {.log_strength = -1}, {.clip = INFINITY}})
    CHECK_THROWS_WITH(InklingRelative(third, heads, wrong),
                      Containing("none may be negative or infinite"));
  nn::AttentionInputs inputs = make_call(2, 2);
  CHECK_THROWS_WITH(
      past.apply(inputs),
      "[InklingRelative] the table has no rows for keys after the query; use a causal "
      "mask, or set bidirectional = true");
  inputs.options.mask.causal = true;
  CHECK_THROWS_WITH(past.apply(inputs),
                    "[InklingRelative] cross-attention; accepted: self-attention, as position "
                    "queries are projections of the layer's input");
  inputs.x = zeros({2, 2, 24});
  inputs.options.scale = 0;
  CHECK_THROWS_WITH(past.apply(inputs), Containing("scale 0"));
}

TEST_CASE("InklingRelative: keys at a distance have their own term, before and after the query") {
  // One head of one feature with p = 2 x, q = k = 0: the scores are twice the rows of the table.
  Parent parent;
  const InklingRelative position(parent, {.n_heads = 1, .d_key = 1, .d_value = 1, .d_model = 1},
                                 {.dim = 1, .extent = 2, .bidirectional = true});
  position.r.weight.detach().copy_(full({1, 1}, 2));
  position.table.detach().copy_(tensor<float>({-1, 0.5, 3}, {1, 3, 1}));
  nn::AttentionInputs inputs{zeros({1, 1, 4, 1}), zeros({1, 1, 4, 1}), zeros({1, 1, 4, 1}), {}};
  inputs.x = ones({1, 4, 1});
  position.apply(inputs);
  const Tensor scores = attention_scores(inputs.q, inputs.k, inputs.options);
  CHECK(scores.select(2, 1).to_vector<float>() == std::vector<float>{-2, 1, 6, 0});
}

TEST_CASE("InklingRelative: scores grow with the logarithm of the position from a floor on") {
  for (const int64_t padded : {0, 3}) {
    INFO("padding of " << padded);
    manual_seed(3);
    nn::MultiHeadAttention layer(
        {.d_model = 8,
         .n_heads = 2,
         .position = nn::inkling_relative({.dim = 3, .extent = 5, .log_floor = 4})});
    layer.to(f64);
    const Tensor x = fixed_noise({1, 12, 8}, 7);
    const Tensor scores = layer.scores(x, {.causal = true});
    nn::MultiHeadAttention plain(
        {.d_model = 8, .n_heads = 2, .position = nn::inkling_relative({.dim = 3, .extent = 5})});
    plain.to(f64);
    copy_state(layer, plain);
    const Tensor without = plain.scores(x, {.causal = true});
    for (int64_t i = 0; i < 12; ++i) {
      const double factor = 1 + 0.1 * std::log(std::max(double(i + 1) / 4, 1.0));
      const Tensor row = without.slice(2, i, i + 1).slice(3, 0, i + 1);
      CHECK(worst_error(scores.slice(2, i, i + 1).slice(3, 0, i + 1), row * factor) < 1e-13);
    }
    // With a memory or a cache, and behind padding, a position has the factor of the whole sequence.
    const Tensor want = layer(x, {.causal = true});
    const nn::AttentionInputs last = layer.project(x.slice(1, 7), x, {.causal = true});
    CHECK(worst_error(layer.attend(last), want.slice(1, 7)) < 1e-12);
    nn::KeyValueCache cache = layer.make_cache();
    nn::ForwardContext forward;
    if (padded > 0) forward.left_padding = {padded};
    const Tensor all = cat({zeros({1, padded, 8}, {.dtype = f64}), x}, 1);
    Tensors parts;
    for (int64_t i = 0; i < all.size(1); i += 5)
      parts.push_back(layer(all.slice(1, i, i + 5), {.causal = true}, &cache, forward));
    CHECK(worst_error(cat(parts, 1).slice(1, padded), want) < 1e-12);
  }
}

TEST_CASE("InklingRelative: a limited cache counts positions from the start of the sequence") {
  manual_seed(3);
  nn::MultiHeadAttention layer(
      {.d_model = 8,
       .n_heads = 2,
       .position = nn::inkling_relative({.dim = 3, .extent = 5, .clip = 1, .log_floor = 4})});
  layer.to(f64);
  const Tensor x = fixed_noise({1, 14, 8}, 7);
  const Tensor want = layer(x, {.causal = true, .window = 7});
  nn::KeyValueCache cache = layer.make_cache(6);
  Tensors parts;
  for (int64_t i = 0; i < x.size(1); ++i)
    parts.push_back(layer(x.slice(1, i, i + 1), {.causal = true}, &cache));
  CHECK(worst_error(cat(parts, 1), want) < 1e-12);
}

TEST_CASE("add_key_side_term: gradients and second gradients equal finite differences") {
  for (const int64_t tables : {1, 3}) {
    const nn::AttentionInputs made = make_call(2, 4, 1);
    for (const Tensor& x : {made.q, made.k, made.v}) x.set_requires_grad();
    testing::check_gradients(
        [](const Tensors& x) {
          nn::AttentionInputs inputs{x[0], x[1], x[2], {}};
          inputs.options.relative_keys = {x[3], 2, OutOfRange::clip};
          nn::add_key_side_term(inputs, inputs.options.relative_keys);
          return output(inputs);
        },
        {made.q, made.k, made.v, testing::fixed_leaf({tables, 4, 4}, 5)});
  }
}

TEST_CASE("add_key_side_term: out-of-range policies, tables per head, errors") {
  for (const int64_t tables : {1, 3})
    for (const OutOfRange out_of_range : {OutOfRange::zero, OutOfRange::clip, OutOfRange::error})
      for (const int64_t groups : {1, 3}) {
        const Tensor rows = fixed_noise({tables, 4, 4}, 6);  // relative positions −2 … 1
        nn::AttentionInputs inputs = make_call(6, 8, groups);
        nn::add_key_side_term(inputs, {rows, 2, out_of_range});
        const Tensor wide = relative_rows({rows, 2, out_of_range}, -7, 13);
        const Tensor want = reference::disentangled_bias(
            inputs.q, inputs.k, Tensor(), {}, wide, [](int64_t d) { return 7 - d; }, 0.5);
        CHECK(worst_error(inputs.options.bias, want) < 1e-14);
      }
  nn::AttentionInputs inputs = make_call(2, 2);
  CHECK_THROWS_WITH(nn::add_key_side_term(inputs, {zeros({2, 3, 4}, {.dtype = f64}), 1}),
                    "[add_key_side_term] table f64 [2, 3, 4]; must be [3 or 1, R, 4]");
  CHECK_FALSE(inputs.options.bias.defined());
}
