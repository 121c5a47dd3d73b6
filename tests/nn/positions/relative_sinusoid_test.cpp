#include "nn/positions/relative_sinusoid.h"

#include "nn/attention/attention.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/sinusoid.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "tests/reference/transformer_xl.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"
#include "tests/support/position_check.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using nn::RelativeSinusoid;
using reference::matrix;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

TensorOptions doubles() { return {.dtype = f64}; }

// A RelativeSinusoid for `heads` with noise as u and v.
struct Made : Parent {
  RelativeSinusoid position;
  Made(nn::HeadShape heads, int64_t clamp = 0) : position(*this, heads, {.clamp = clamp}) {
    to(f64);
    position.u.detach().copy_(fixed_noise(position.u.shape(), 11));
    position.v.detach().copy_(fixed_noise(position.v.shape(), 12));
  }
};

// Attention by its definition for one batch entry, head by head: q, k, v [1, H, ., D].
Tensor by_loops(const Made& made, const nn::AttentionInputs& inputs) {
  const nn::HeadShape s = made.position.shape;
  const int64_t m = inputs.n_queries(), n = inputs.n_keys();
  Tensors heads;
  for (int64_t h = 0; h < s.n_heads; ++h) {
    auto of_head = [&](const Tensor& x) { return matrix(x[0][h]); };
    const auto terms = reference::xl_terms(
        of_head(inputs.q), of_head(inputs.k),
        matrix(made.position.r.weight.slice(0, h * s.d_key, (h + 1) * s.d_key)),
        matrix(made.position.u.slice(0, h, h + 1)), matrix(made.position.v.slice(0, h, h + 1)),
        made.position.options.clamp);
    heads.push_back(reference::tensor(reference::xl_attention(
        terms, of_head(inputs.v), s.d_key,
        [&](int64_t i, int64_t j) { return inputs.options.mask.causal && j > i + n - m; })));
  }
  return stack(heads).unsqueeze(0);
}

nn::AttentionInputs noisy_call(nn::HeadShape s, int64_t m, int64_t n, bool causal) {
  nn::AttentionInputs inputs{fixed_noise({1, s.n_heads, m, s.d_key}, 1),
                             fixed_noise({1, s.n_heads, n, s.d_key}, 2),
                             fixed_noise({1, s.n_heads, n, s.d_value}, 3),
                             {}};
  inputs.options.mask.causal = causal;
  return inputs;
}

Tensor run(const RelativeSinusoid& position, nn::AttentionInputs inputs,
           Implementation implementation = Implementation::automatic) {
  position.apply(inputs);
  inputs.options.implementation = implementation;
  return attention(inputs.q, inputs.k, inputs.v, inputs.options);
}

}  // namespace

TEST_CASE(
    "DistanceSinusoids: rows of falling distances, the same however often they are requested") {
  const nn::DistanceSinusoids rows;
  auto expected = [](int64_t past, int64_t future) {
    return nn::sinusoids(past + future + 1, 6, nn::Sinusoid::concatenated, past, -1, doubles());
  };
  for (const auto& [past, future] : std::vector<std::pair<int64_t, int64_t>>{
           {3, 0}, {5, 0}, {2, 0}, {2, 1}, {9, 0}, {40, 0}, {4, 3}, {39, 2}, {0, 0}, {1, 7}}) {
    CHECK(rows(past, future, 6, doubles()).shape() == Shape{past + future + 1, 6});
    CHECK(same_bits(rows(past, future, 6, doubles()), expected(past, future)));
  }
  CHECK(worst_error(rows(2, 0, 6, doubles())[2],
                    reference::tensor(reference::distance_sinusoid(0, 6))[0]) == 0);
  CHECK(rows(2, 0, 6, {}).dtype() == f32);  // the f64 table is not returned
  CHECK(rows(2, 0, 8, {}).shape() == Shape{3, 8});
  CHECK_THROWS_WITH(rows(-1, 0, 8, {}), Containing("distances from -1 to 0; past"));
}

TEST_CASE("RelativeSinusoid: parameters") {
  constexpr nn::HeadShape heads{.n_heads = 3, .d_key = 4, .d_value = 5, .d_model = 10};
  Parent parent;
  const RelativeSinusoid position(parent, heads, {});
  const auto named = parent.named_parameters();
  REQUIRE(named.size() == 3);
  CHECK(named[0].name == "position.r.weight");
  CHECK(named[0].tensor.shape() == Shape{12, 10});
  CHECK(named[1].name == "position.u");
  CHECK(named[2].name == "position.v");
  CHECK(same_bits(position.u, zeros({3, 4})));
  CHECK(same_bits(position.v, zeros({3, 4})));
  CHECK(parent.parameter_count() == 120 + 24);
  CHECK(position.label() == "RelativeSinusoid(own u, v)");

  Parent other;
  const RelativeSinusoid sharing(other, heads, {.clamp = 7, .u = position.u, .v = position.v});
  CHECK(sharing.u.same(position.u));
  CHECK(sharing.label() == "RelativeSinusoid(clamp 7, shared u, v)");
  CHECK(other.parameter_count() == 120 + 24);

  Parent bad;
  CHECK_THROWS_WITH(RelativeSinusoid(bad, heads, {.clamp = -1}), Containing("clamp -1"));
  CHECK_THROWS_WITH(RelativeSinusoid(bad, {1, 4, 4, 9}, {}), Containing("d_model 9; must be even"));
  CHECK_THROWS_WITH(RelativeSinusoid(bad, heads, {.u = position.u}),
                    Containing("share both or neither"));
  CHECK_THROWS_WITH(
      RelativeSinusoid(bad, heads, {.u = zeros({4, 3}).set_requires_grad(), .v = position.v}),
      Containing("u f32 [4, 3]; must be [3, 4]"));
}

TEST_CASE("RelativeSinusoid agrees with the reference, with and without memory") {
  const int64_t m = GENERATE(1, 3, 6), memory = GENERATE(0, 1, 7), n = m + memory;
  const int64_t size = GENERATE(1, 4, 41);
  const nn::HeadShape heads{2, size, 3, 6};
  const Made made(heads);
  const nn::AttentionInputs inputs = noisy_call(heads, m, n, true);
  const Tensor expected = by_loops(made, inputs);
  for (const Implementation implementation : testing::implementations())
    CHECK(worst_error(run(made.position, inputs, implementation), expected) < 1e-12);
}

TEST_CASE("RelativeSinusoid: numbers of queries and keys that no tile divides") {
  const int64_t m = GENERATE(1, 65), memory = GENERATE(63, 130);
  const nn::HeadShape heads{1, 3, 3, 4};
  const Made made(heads);
  const nn::AttentionInputs inputs = noisy_call(heads, m, m + memory, true);
  const Tensor expected = by_loops(made, inputs);
  for (const Implementation implementation : testing::implementations())
    CHECK(worst_error(run(made.position, inputs, implementation), expected) < 1e-12);
}

TEST_CASE("RelativeSinusoid: a clamp below, at and above the largest distance") {
  const nn::HeadShape heads{2, 4, 4, 6};
  const nn::AttentionInputs inputs = noisy_call(heads, 4, 9, true);
  const Tensor unclamped = run(Made(heads).position, inputs);
  for (const int64_t clamp : {1, 3, 7, 8, 9, 100}) {
    const Made made(heads, clamp);
    made.position.r.weight.detach().copy_(fixed_noise({8, 6}, 5));
    const Made plain(heads);
    plain.position.r.weight.detach().copy_(fixed_noise({8, 6}, 5));
    for (const Implementation implementation : testing::implementations()) {
      const Tensor y = run(made.position, inputs, implementation);
      CHECK(worst_error(y, by_loops(made, inputs)) < 1e-12);
      CHECK(same_bits(y, run(plain.position, inputs, implementation)) == (clamp >= 8));
    }
  }
}

TEST_CASE("RelativeSinusoid: without a causal mask distances may be negative") {
  const int64_t clamp = GENERATE(0, 2), m = GENERATE(1, 5), n = GENERATE(5, 8);
  const nn::HeadShape heads{2, 4, 4, 6};
  const Made made(heads, clamp);
  const nn::AttentionInputs inputs = noisy_call(heads, m, n, false);
  for (const Implementation implementation : testing::implementations())
    CHECK(worst_error(run(made.position, inputs, implementation), by_loops(made, inputs)) < 1e-12);
}

TEST_CASE("RelativeSinusoid works in a decoder with a cache") {
  testing::check_causal_position(nn::relative_sinusoid());
  testing::check_causal_position(nn::relative_sinusoid({.clamp = 4}));
}

TEST_CASE("RelativeSinusoid: special cases equal other schemes") {
  const nn::HeadShape heads{2, 4, 4, 6};
  const nn::AttentionInputs inputs = noisy_call(heads, 3, 8, true);
  SECTION("without projection and content bias it is dot-product attention with memory") {
    const Made made(heads);
    made.position.r.weight.detach().zero_();
    made.position.u.detach().zero_();
    CHECK(worst_error(run(made.position, inputs),
                      attention(inputs.q, inputs.k, inputs.v, {.mask = {.causal = true}})) < 1e-14);
  }
  SECTION("without biases it is the Music Transformer with projected sinusoids as its table") {
    const Made made(heads);
    made.position.u.detach().zero_();
    made.position.v.detach().zero_();
    const nn::AttentionInputs whole = noisy_call(heads, 5, 5, true);
    Parent parent;
    const nn::MusicRelative music(parent, heads, {.max_length = 5});
    parent.to(f64);
    const Tensor rows = nn::sinusoids(5, 6, nn::Sinusoid::concatenated, 4, -1, doubles());
    music.table.detach().copy_(
        linear(rows, made.position.r.weight.detach()).reshape({5, 2, 4}).transpose(0, 1));
    nn::AttentionInputs other = whole;
    music.apply(other);
    CHECK(worst_error(run(made.position, whole),
                      attention(other.q, other.k, other.v, other.options)) < 1e-14);
  }
}

TEST_CASE("RelativeSinusoid uses the rows that a model passes") {
  const nn::HeadShape heads{2, 4, 4, 6};
  const Made made(heads);
  nn::AttentionInputs inputs = noisy_call(heads, 3, 8, true);
  const Tensor own = run(made.position, inputs);
  const nn::DistanceSinusoids rows;
  inputs.forward.shared_table = rows(7, 0, 6, doubles());
  CHECK(same_bits(run(made.position, inputs), own));
  inputs.forward.shared_table = inputs.forward.shared_table * 2.0;
  CHECK(worst_error(run(made.position, inputs), own) > 1e-3);

  // Fewer rows: keys further back share the first row.
  inputs.forward.shared_table = rows(4, 0, 6, doubles());
  const Made clamped(heads, 4);
  clamped.position.r.weight.detach().copy_(made.position.r.weight.detach());
  CHECK(
      same_bits(run(made.position, inputs), run(clamped.position, noisy_call(heads, 3, 8, true))));

  inputs.forward.shared_table = zeros({5, 8}, doubles());
  CHECK_THROWS_WITH(run(made.position, inputs), Containing("f64 [5, 8]; must be [distances, 6]"));
  inputs.options.mask.causal = false;
  CHECK_THROWS_WITH(run(made.position, inputs), Containing("attention must be causal"));
}

TEST_CASE("RelativeSinusoid: gradients") {
  const int64_t m = GENERATE(1, 3), n = GENERATE(3, 5), clamp = GENERATE(0, 2);
  const nn::HeadShape heads{2, 2, 2, 4};
  Made made(heads, clamp);
  const nn::AttentionInputs inputs = noisy_call(heads, m, n, true);
  for (const Implementation implementation : testing::implementations())
    testing::check_gradients(
        [&](const Tensors& x) {
          nn::AttentionInputs c = inputs;
          c.q = x[0];
          c.k = x[1];
          c.v = x[2];
          testing::stand_in(x[3], made.position.r.weight);
          testing::stand_in(x[4], made.position.u);
          testing::stand_in(x[5], made.position.v);
          return run(made.position, c, implementation);
        },
        {testing::fixed_leaf(inputs.q.shape(), 1), testing::fixed_leaf(inputs.k.shape(), 2),
         testing::fixed_leaf(inputs.v.shape(), 3), testing::fixed_leaf({4, 4}, 4),
         testing::fixed_leaf({2, 2}, 5), testing::fixed_leaf({2, 2}, 6)},
        implementation == Implementation::composed);
}
