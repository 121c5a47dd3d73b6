// The positional encoding of examples/own_position.cpp and docs/add-a-position.md.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wreturn-type"  // an unused main()
#define main own_position_main
#include "examples/own_position.cpp"
#undef main
#pragma GCC diagnostic pop

#include "nn/attention/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/position_check.h"

using testing::fixed_noise;
using testing::worst_error;

namespace {

nn::AttentionInputs call_of(int64_t m, int64_t n, DType dtype = f64) {
  return {fixed_noise({1, 2, m, 4}, 1, dtype),
          fixed_noise({1, 2, n, 4}, 2, dtype),
          fixed_noise({1, 2, n, 4}, 3, dtype),
          {}};
}

}  // namespace

TEST_CASE("relative_range and relative_positions cover all keys that queries can see") {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {7, 3}, {0, 4}, {4, 0}}) {
    nn::AttentionInputs inputs = call_of(m, n);
    for (const bool causal : {false, true}) {
      inputs.options.mask.causal = causal;
      const RelativeRange range = nn::relative_range(inputs);
      CHECK(range.past == std::max<int64_t>(n - 1, 0));
      CHECK(range.future == (causal ? 0 : std::max<int64_t>(m - 1, 0)));
      const std::vector<double> r = nn::relative_positions(inputs).to_vector<double>();
      REQUIRE(int64_t(r.size()) == range.count());
      for (size_t i = 0; i < r.size(); ++i) CHECK(r[i] == double(int64_t(i) - range.past));
    }
  }
  CHECK(nn::relative_positions(call_of(2, 2)).dtype() == f64);
  for (const DType dtype : {f32, bf16})
    CHECK(nn::relative_positions(call_of(2, 2, dtype)).dtype() == f32);
}

TEST_CASE("add_bias adds to an existing bias and names the shape of the scores") {
  nn::AttentionInputs inputs = call_of(3, 7);
  nn::add_bias(inputs, full({7}, 1.0, {.dtype = f64}));
  nn::add_bias(inputs, full({2, 3, 1}, 2.0, {.dtype = f64}));
  CHECK(equal(inputs.options.bias, full({2, 3, 7}, 3.0, {.dtype = f64})));
  CHECK_THROWS_WITH(nn::add_bias(inputs, zeros({2, 7})),
                    "[add_bias] the bias f32 [2, 7] does not broadcast to [B, H, M, N] = "
                    "[1, 2, 3, 7]; a bias [H, R] per relative position belongs into "
                    "AttentionOptions::relative_bias");
  CHECK_THROWS_WITH(nn::add_bias(inputs, zeros({1, 1, 1, 1, 1})), Containing("[add_bias] "));
}

TEST_CASE("the example encoding passes the checks of every causal encoding") {
  testing::check_causal_position(nn::positional_encoding<Fading>());
}

TEST_CASE("the example encoding: the bias for later keys equals that for earlier ones") {
  const auto layer = testing::layer_with(nn::positional_encoding<Fading>());
  const Tensor x = fixed_noise({1, 9, 8}, 1), scores = layer->scores(x);
  const auto bare = testing::layer_with({});
  const Tensor bias = scores - bare->scores(x);
  for (int64_t i = 0; i < 9; ++i)
    for (int64_t j = 0; j < 9; ++j)
      CHECK(bias[0][0][i][j].item() == Approx(-0.1f * double(std::abs(i - j))).margin(1e-12));
}

TEST_CASE("the example encoding counts distances above 256 exactly in bf16 models") {
  struct Parent : nn::Module {
  } parent;
  const Fading position(parent, {.n_heads = 2});
  parent.to(bf16);
  nn::AttentionInputs inputs = call_of(1, 1000, bf16);
  inputs.options.mask.causal = true;
  position.apply(inputs);
  const RelativeTable& table = inputs.options.relative_bias;
  CHECK(table.rows.dtype() == bf16);
  CHECK(table.zero_row == 999);
  const double slope = position.slope[0].item();
  for (const int64_t distance : {0, 1, 255, 257, 513, 999}) {
    const double want = -slope * double(distance);
    CHECK(std::abs(table.rows[0][999 - distance].item() - want) <= std::abs(want) / 256);  // bf16
  }
}
