#include "nn/positions/rotary.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/reference/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/position_check.h"

using namespace stretto;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

constexpr RotaryPairing pairings[] = {RotaryPairing::half, RotaryPairing::interleaved};

// The products of rotated queries and keys.
Tensor scores(const Tensor& q, const Tensor& k, int64_t first, const RotaryOptions& o) {
  const Tensor keys = rotate(k, first, o, Side::key);
  return matmul(rotate(q, first + k.size(2) - q.size(2), o), keys.transpose(2, 3));
}

}  // namespace

TEST_CASE("rotate equals its formula") {
  for (const RotaryPairing pairing : pairings)
    for (const RotaryOptions& o : {RotaryOptions{.pairing = pairing},
                                   {.dims = 2, .pairing = pairing},
                                   {.dims = 4, .base = 500, .pairing = pairing},
                                   {.pairing = pairing, .scale = 2.5},
                                   {.pairing = pairing, .scale = 0.5, .ntk = 3},
                                   {.dims = 2, .pairing = pairing, .ntk = 8}})
      for (const int64_t first : {0, 3, -7, 1000000})
        for (const int64_t l : {1, 9}) {
          const Tensor x = fixed_noise({2, 3, l, 6}, 1);
          // Each angle, at most |t| / scale, is rounded three times.
          const double angle = double(std::abs(first) + l) / o.scale;
          CHECK(worst_error(rotate(x, first, o), reference::rotated(x, first, o)) <
                1e-14 + 6 * 0x1p-53 * std::sqrt(2.0) * angle);
        }
  // Heads of 41 features, the last of which cannot be rotated.
  const Tensor x = fixed_noise({1, 2, 5, 41}, 1);
  CHECK(worst_error(rotate(x, 8, {.dims = 40}), reference::rotated(x, 8, {.dims = 40})) < 1e-13);
  CHECK(rotate(zeros({2, 1, 0, 4}), 5).shape() == Shape{2, 1, 0, 4});
}

TEST_CASE("rotate leaves position 0 and the features after the pairs unchanged") {
  for (const RotaryPairing pairing : pairings)
    for (const DType dtype : {f64, f32, bf16}) {
      const Tensor x = fixed_noise({2, 1, 4, 10}, 1, dtype);
      const Tensor y = rotate(x, 0, {.dims = 6, .pairing = pairing});
      CHECK(same_bits(y.slice(3, 6), x.slice(3, 6)));
      CHECK(same_bits(y.select(2, 0), x.select(2, 0)));
      CHECK(!same_bits(y.select(2, 1), x.select(2, 1)));
      CHECK(y.dtype() == dtype);
    }
}

TEST_CASE("rotate preserves norms, and rotations add up") {
  const Tensor x = fixed_noise({2, 2, 5, 8}, 1);
  const Tensor y = rotate(x, 12);
  CHECK(worst_error(sum(square(y), {3}), sum(square(x), {3})) < 1e-14);
  // By t, then by u, equals t + u. Row by row, because `rotate` advances with the rows.
  const Tensor row = x.slice(2, 0, 1);
  CHECK(worst_error(rotate(rotate(row, 12), -5), rotate(row, 7)) < 1e-14);
  CHECK(worst_error(rotate(rotate(row, 12), -12), row) < 1e-14);
}

TEST_CASE("rotate: scores do not change when both positions are shifted") {
  const Tensor q = fixed_noise({2, 2, 4, 6}, 1), k = fixed_noise({2, 2, 9, 6}, 2);
  for (const RotaryPairing pairing : pairings)
    for (const bool xpos : {false, true}) {
      const RotaryOptions o{.dims = 4, .pairing = pairing, .xpos = xpos};
      const Tensor here = scores(q, k, 0, o);
      for (const int64_t shift : {-3, 5, 700})
        CHECK(worst_error(scores(q, k, shift, o), here) < 1e-12);
      CHECK(worst_error(here, reference::rotary_scores(q, k, o)) < 1e-13);
    }
}

TEST_CASE("rotate: both pairings are equal up to the order of the features") {
  const int64_t d = 10, dims = 8;
  std::vector<int64_t> order;  // index of the interleaved pairs in halves
  for (int64_t i = 0; i < dims; ++i) order.push_back(i % 2 * (dims / 2) + i / 2);
  for (int64_t i = dims; i < d; ++i) order.push_back(i);
  const Tensor index = tensor(order, {d}), x = fixed_noise({2, 2, 7, d}, 1);
  const Tensor halves = rotate(x, 3, {.dims = dims});
  const Tensor neighbors =
      rotate(index_select(x, 3, index), 3, {.dims = dims, .pairing = RotaryPairing::interleaved});
  CHECK(same_bits(index_select(halves, 3, index), neighbors));
}

TEST_CASE("rotate: scale and ntk extend the range of positions") {
  const Tensor x = fixed_noise({1, 1, 1, 8}, 1);
  // Linear interpolation: position 12 of a sequence three times as long is position 4.
  CHECK(worst_error(rotate(x, 12, {.scale = 3}), rotate(x, 4)) < 1e-14);
  // NTK: the same for the slowest pair, while the fastest one rotates as before.
  const Tensor y = rotate(x, 12, {.ntk = 3}), slow = rotate(x, 4), fast = rotate(x, 12);
  CHECK(worst_error(y.slice(3, 3, 8, 4), slow.slice(3, 3, 8, 4)) < 1e-14);
  CHECK(worst_error(y.slice(3, 0, 8, 4), fast.slice(3, 0, 8, 4)) < 1e-14);
  CHECK(worst_error(y.slice(3, 1, 8, 4), fast.slice(3, 1, 8, 4)) > 1e-3);
}

TEST_CASE("rotate: angles are exact at far positions in every dtype") {
  const int64_t far = 1000003;
  const Tensor x = fixed_noise({1, 1, 1, 8}, 1, bf16);  // exact in every dtype
  const Tensor want = reference::rotated(x, far, {});
  // Cosine, sine, two products and a sum, each rounded once, of values up to √2.
  const double in_f32 = 5 * 0x1p-24 * std::sqrt(2.0);
  CHECK(worst_error(rotate(x.to(f32), far).to(f64), want) < in_f32);
  // bf16 is rotated in f32; then one rounding of a value below 2.
  CHECK(worst_error(rotate(x, far).to(f64), want) < in_f32 + 0x1p-8);
}

TEST_CASE("xPos is RoPE times a decay with the distance") {
  // With one pair the decay is ζ^(distance / scale_base), ζ = 0.4 / 1.4.
  const Tensor q = fixed_noise({1, 1, 6, 2}, 1), k = fixed_noise({1, 1, 6, 2}, 2);
  const Tensor rope = scores(q, k, 0, {}), xpos = scores(q, k, 0, {.xpos = true});
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 6; ++j)
      CHECK(std::fabs(xpos[0][0][i][j].item() -
                      rope[0][0][i][j].item() * std::pow(0.4 / 1.4, double(i - j) / 512)) < 1e-14);
  // An infinite scale base has no decay.
  CHECK(worst_error(scores(q, k, 0, {.xpos = true, .xpos_scale_base = 1e18}), rope) < 1e-14);
}

TEST_CASE("rotate: gradients") {
  for (const RotaryPairing pairing : pairings)
    for (const RotaryOptions& o : {RotaryOptions{.pairing = pairing},
                                   {.dims = 4, .pairing = pairing},
                                   {.pairing = pairing, .xpos = true, .xpos_scale_base = 3}})
      for (const Side side : {Side::query, Side::key})
        check_gradients([&](const Tensors& in) { return rotate(in[0], -2, o, side); },
                        {fixed_leaf({2, 1, 3, 6}, 1)});
}

TEST_CASE("rotate: invalid inputs and options are errors") {
  CHECK_THROWS_WITH(rotate(zeros({3, 4}), 0),
                    "[rotate] x f32 [3, 4]; must be a floating-point tensor [B, H, L, D]");
  const Tensor x = zeros({1, 1, 3, 41});
  CHECK_THROWS_WITH(rotate(x, 0),
                    "[rotate] dims 0 of heads with 41 features; accepted: an even "
                    "number up to 41, or 0 for all of an even number");
  for (const int64_t dims : {-2, 3, 42})
    CHECK_THROWS_WITH(rotate(x, 0, {.dims = dims}), Containing(str("dims ", dims, " of heads")));
  for (const RotaryOptions& o : {RotaryOptions{.dims = 4, .base = 0},
                                 {.dims = 4, .scale = 0},
                                 {.dims = 4, .ntk = -1},
                                 {.dims = 4, .xpos_scale_base = 0}})
    CHECK_THROWS_WITH(rotate(x, 0, o), Containing("all must be positive"));
}

TEST_CASE("xPos: positions whose factor overflows the dtype are an error") {
  const RotaryOptions o{.xpos = true, .xpos_scale_base = 10};
  const Tensor x = ones({1, 1, 2, 4});
  // 10 · 30 ln 10 / ln 3.5
  CHECK_THROWS_WITH(rotate(x, 551, o),
                    "[rotate] xPos factors at positions 551 to 552 overflow f32; accepted: -551 "
                    "to 551, or more with a larger xpos_scale_base");
  CHECK_THROWS_WITH(rotate(x, -552, o), Containing("accepted: -551 to 551"));
  for (const Side side : {Side::query, Side::key})
    for (const int64_t first : {-551, 550}) {
      const double most = max(abs(rotate(x, first, o, side))).item();
      CHECK(std::isfinite(most));
    }
  CHECK(rotate(x.to(f64), 552, o).dtype() == f64);
  CHECK_THROWS_WITH(rotate(x.to(f64), 5520, o), Containing("overflow f64"));
}

TEST_CASE("Rotary: no parameters, label, errors") {
  Parent parent, other;
  const nn::Rotary position(parent, {.n_heads = 2, .d_key = 8}, {});
  CHECK(parent.parameter_count() == 0);
  CHECK(position.label() == "Rotary(RoPE, half)");
  CHECK(nn::Rotary(other, {.n_heads = 2, .d_key = 41},
                   {.dims = 40, .pairing = RotaryPairing::interleaved, .xpos = true})
            .label() == "Rotary(xPos, interleaved, 40 dims)");
  Parent third;
  CHECK_THROWS_WITH(nn::Rotary(third, {.n_heads = 2, .d_key = 41}, {}),
                    Containing("[Rotary] dims 0 of heads with 41 features"));
  const auto xpos = testing::layer_with(nn::rotary({.xpos = true}));
  CHECK_THROWS_WITH((*xpos)(fixed_noise({1, 5, 8}, 1)),
                    "[MultiHeadAttention] Rotary(xPos, half) without a causal mask; "
                    "accepted: a causal mask, or another positional encoding");
  CHECK((*xpos)(fixed_noise({1, 5, 8}, 1), {.block = 2}).shape() == Shape{1, 5, 8});
}

TEST_CASE("Rotary equals attention with its scores as a bias") {
  struct Size {
    int64_t m, n;
  };
  for (const RotaryPairing pairing : pairings)
    for (const bool xpos : {false, true})
      for (const Size size : {Size{1, 1}, {7, 7}, {3, 9}, {1, 9}, {9, 3}, {33, 70}})
        for (const Implementation implementation :
             {Implementation::automatic, Implementation::composed})
          for (const bool causal : {false, true}) {
            if ((causal && size.m > size.n) || (xpos && !causal)) continue;
            Parent parent;
            const RotaryOptions o{.dims = 4, .pairing = pairing, .xpos = xpos};
            const nn::Rotary position(parent, {.n_heads = 4, .d_key = 6}, o);
            nn::AttentionInputs inputs{fixed_noise({2, 4, size.m, 6}, 1),
                                       fixed_noise({2, 2, size.n, 6}, 2),
                                       fixed_noise({2, 2, size.n, 3}, 3),
                                       {}};
            inputs.options.mask.causal = causal;
            inputs.options.implementation = implementation;
            const Tensor bias =
                reference::rotary_scores(inputs.q, inputs.k, o) * (1 / std::sqrt(6.0));
            const Tensor want = reference::attention(zeros_like(inputs.q), inputs.k, inputs.v,
                                                     {.mask = {.causal = causal}, .bias = bias});
            position.apply(inputs);
            CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options), want) <
                  1e-12);
          }
}

TEST_CASE("Rotary: gradients through attention") {
  Parent parent;
  const Tensor v = fixed_noise({1, 1, 7, 3}, 3);
  for (const bool xpos : {false, true})
    for (const Implementation implementation :
         {Implementation::automatic, Implementation::composed}) {
      Parent owner;
      const nn::Rotary position(owner, {.n_heads = 2, .d_key = 4}, {.xpos = xpos});
      check_gradients(
          [&](const Tensors& in) {
            nn::AttentionInputs inputs{in[0], in[1], v, {}};
            inputs.options.mask.causal = true;
            inputs.options.implementation = implementation;
            position.apply(inputs);
            return attention(inputs.q, inputs.k, inputs.v, inputs.options);
          },
          {fixed_leaf({1, 2, 3, 4}, 1), fixed_leaf({1, 1, 7, 4}, 2)},
          implementation == Implementation::composed);
    }
}

TEST_CASE("Rotary: a cache stores rotated keys, for xPos the original keys") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  for (const bool xpos : {false, true})
    for (const int64_t limit : {0, 4}) {
      nn::MultiHeadAttention attention(
          {.d_model = 8, .n_heads = 2, .position = nn::rotary({.xpos = xpos})});
      attention.to(f64);
      const Tensor keys = attention.k(x).reshape({2, 9, 2, 4}).transpose(1, 2);
      nn::KeyValueCache cache;
      cache.limit = limit;
      const AttentionMask visible{.causal = true, .window = 4};
      const Tensor y = attention(x, visible);
      CHECK(worst_error(attention(x.slice(1, 0, 6), visible, &cache), y.slice(1, 0, 6)) < 1e-14);
      for (int64_t at = 6; at < 9; ++at)
        CHECK(worst_error(attention(x.slice(1, at, at + 1), visible, &cache),
                          y.slice(1, at, at + 1)) < 1e-13);
      const Tensor want = xpos ? keys : rotate(keys, 0);
      CHECK(worst_error(cache.k, limit > 0 ? want.slice(2, -limit) : want) < 1e-15);
    }
}

TEST_CASE("Rotary works in a decoder") {
  for (const RotaryPairing pairing : pairings)
    for (const bool xpos : {false, true})
      for (const int64_t dims : {0, 4})
        testing::check_causal_position(
            nn::rotary({.dims = dims, .pairing = pairing, .xpos = xpos}));
}

TEST_CASE("xPos is accurate over a long sequence in f32") {
  // The last query of 40,000 positions: factors up to 3.5^39, products with a decay of 3.5^−78.
  const int64_t n = 40000;
  Parent parent;
  const nn::Rotary position(parent, {.n_heads = 1, .d_key = 4}, {.xpos = true});
  nn::AttentionInputs inputs{fixed_noise({1, 1, 1, 4}, 1, f32),
                             fixed_noise({1, 1, n, 4}, 2, f32),
                             fixed_noise({1, 1, n, 4}, 3, f32),
                             {}};
  inputs.options.mask.causal = true;
  const Tensor bias = reference::rotary_scores(inputs.q, inputs.k, {.xpos = true}) * 0.5;
  const Tensor want =
      reference::attention(zeros_like(inputs.q), inputs.k, inputs.v, {.bias = bias});
  position.apply(inputs);
  CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options).to(f64), want) < 1e-5);
}

TEST_CASE("frequencies for long contexts equal those of the published code") {
  const auto agree = [](const std::vector<double>& got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(std::fabs(got[i] - want[i]) <= 1e-14 * std::fabs(want[i]));
  };
  // LLaMA 3.1, 3.2, and lengths in which all, some and none of the pairs make a rotation.
  for (const Llama3Scaling& s : {Llama3Scaling{.dims = 128},
                                 {.dims = 64, .factor = 32},
                                 {.dims = 8, .base = 10000, .factor = 4, .length = 64},
                                 {.dims = 8, .base = 100, .length = 100000},
                                 {.dims = 2, .length = 3}})
    agree(llama3_frequencies(s), reference::llama3_rates(s));
  for (const YarnScaling& s : {YarnScaling{.dims = 128, .factor = 16, .length = 4096},
                               {.dims = 64, .base = 1e6, .factor = 4, .length = 32768},
                               {.dims = 64, .factor = 40, .length = 4096, .truncate = false},
                               {.dims = 8, .factor = 2, .length = 1e9},
                               {.dims = 8, .factor = 2, .length = 6},  // the ends coincide
                               {.dims = 2, .factor = 3, .length = 10}})
    agree(yarn_frequencies(s), reference::yarn_rates(s));
  // The ends: fast pairs are unchanged, slow ones are divided.
  const std::vector<double> llama = llama3_frequencies({.dims = 128});
  CHECK(llama.front() == 1);
  CHECK(llama.back() == Approx(std::pow(500000, -126.0 / 128) / 8).epsilon(1e-14));
  CHECK(yarn_attention_factor(16) == Approx(0.1 * std::log(16) + 1).epsilon(1e-15));
  CHECK(yarn_attention_factor(1) == 1);
  CHECK(yarn_attention_factor(0.5) == 1);
  CHECK_THROWS_WITH(llama3_frequencies({.dims = 3}), Containing("[llama3_frequencies] dims 3"));
  CHECK_THROWS_WITH(llama3_frequencies({.dims = 4, .low_frequency_factor = 4}),
                    "[llama3_frequencies] low_frequency_factor 4 and high_frequency_factor 4; must "
                    "be in rising order");
  CHECK_THROWS_WITH(yarn_frequencies({}), Containing("[yarn_frequencies] dims 0"));
}

TEST_CASE("rotate refuses positions past the length of its frequencies") {
  const RotaryOptions o{.max_length = 9};
  const Tensor x = fixed_noise({1, 2, 4, 6}, 1);
  for (const int64_t first : {-3, 0, 5}) CHECK(same_bits(rotate(x, first, o), rotate(x, first)));
  CHECK_THROWS_WITH(rotate(x, 6, o),
                    "[rotate] positions 6 to 9 with frequencies for sequences of at most 9 "
                    "positions (max_length); accepted: shorter sequences");
  CHECK_THROWS_WITH(rotate(x, 0, {.max_length = -1}), Containing("max_length -1; must be 0"));
  // Generation reaches the same limit.
  manual_seed(2);
  nn::MultiHeadAttention layer({.d_model = 8, .n_heads = 2, .position = nn::rotary(o)});
  nn::KeyValueCache cache;
  const Tensor y = fixed_noise({1, 8, 8}, 1, f32);
  layer(y, {.causal = true}, &cache);
  CHECK_NOTHROW(layer(y.slice(1, 0, 1), {.causal = true}, &cache));
  CHECK_THROWS_WITH(layer(y.slice(1, 0, 1), {.causal = true}, &cache), Containing("positions 9"));
  CHECK(cache.length() == 9);
}

TEST_CASE("rotate accepts custom frequencies and an attention factor") {
  const std::vector<double> frequencies{0.9, 0.02, 0.3};
  for (const RotaryPairing pairing : pairings) {
    const RotaryOptions o{.dims = 6,
                          .pairing = pairing,
                          .scale = 2,
                          .frequencies = frequencies,
                          .attention_factor = 1.3};
    const Tensor q = fixed_noise({2, 4, 5, 8}, 1), k = fixed_noise({2, 4, 9, 8}, 2);
    CHECK(worst_error(rotate(q, 7, o), reference::rotated(q, 7, o)) < 1e-14);
    CHECK(worst_error(scores(q, k, 3, o), reference::rotary_scores(q, k, o)) < 1e-13);
    check_gradients([&](const Tensors& in) { return rotate(in[0], 3, o); },
                    {fixed_leaf({1, 2, 3, 8}, 4)});
  }
  // The same as with base and scale.
  std::vector<double> same;
  for (int i = 0; i < 3; ++i) same.push_back(std::pow(10000.0, -2.0 * i / 6));
  const Tensor x = fixed_noise({1, 2, 5, 6}, 3);
  CHECK(same_bits(rotate(x, 2, {.frequencies = same}), rotate(x, 2)));
  CHECK_THROWS_WITH(rotate(x, 0, {.frequencies = {1, 2}}),
                    "[rotate] 2 frequencies for 6 features and ntk 1; accepted: one for each pair "
                    "with ntk 1, or none");
  CHECK_THROWS_WITH(rotate(x, 0, {.ntk = 2, .frequencies = same}), Containing("and ntk 2"));
  CHECK_THROWS_WITH(rotate(x, 0, {.attention_factor = INFINITY}),
                    "[rotate] attention_factor inf; must be finite");
  testing::check_causal_position(
      nn::rotary({.frequencies = {0.5, 0.1, 0.02}, .attention_factor = 1.2}));
}
