#include "core/random.h"
#include "examples/piano/position_measures.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/spe.h"
#include "tests/support/catch.h"

using namespace stretto;
using examples::position_measures;
using examples::PositionMeasure;

namespace {

nn::LanguageModel model(nn::MakePositionalEncoding position,
                        std::optional<nn::Sinusoid> sinusoid = {}) {
  manual_seed(3);
  return nn::LanguageModel(
      {.vocabulary = 9,
       .n_layers = 1,
       .layer = {.d_model = 16,
                 .attention = {.n_heads = 2, .bias = false, .position = std::move(position)},
                 .feed_forward = {.d_hidden = 8},
                 .norm = nn::NormPlace::post,
                 .dropout = 0.1},
       .input = {.sinusoid = sinusoid}});
}

}  // namespace

TEST_CASE("position_measures: the ranges of Table 7, relative to the trained length") {
  auto m = model({}, nn::Sinusoid{});
  std::vector<std::vector<int64_t>> ranges;
  for (const PositionMeasure& x : position_measures(m, 64, 80, 1)) {
    ranges.push_back({x.first, x.last, x.distances});
    CHECK((x.invariance > 0.05 && x.invariance < 1.5));
    CHECK((x.monotonicity > 0 && x.monotonicity < 1));
  }
  CHECK(ranges == std::vector<std::vector<int64_t>>{{0, 32, 4},
                                                    {0, 32, 16},
                                                    {0, 32, 32},
                                                    {32, 64, 4},
                                                    {32, 64, 16},
                                                    {32, 64, 32},
                                                    {64, 80, 4},
                                                    {64, 80, 16},
                                                    {64, 80, 32}});
  CHECK(position_measures(m, 64, 40, 1).size() == 6);  // shorter than the trained length
  CHECK(position_measures(m, 16, 16, 1).size() == 4);  // a distance of 1 (of 16) is left out
}

TEST_CASE("position_measures: a purely relative position is translation invariant") {
  auto relative = model(nn::alibi());
  for (const PositionMeasure& x : position_measures(relative, 32, 48, 1)) {
    CHECK(x.invariance < 1e-9);
    CHECK(x.monotonicity == 0);  // ALiBi decreases with the distance
  }
}

TEST_CASE("position_measures draw new noise for each token and restore the random state") {
  const nn::SineSpeOptions few{.realizations = 4, .sines = 2, .gated = false};
  auto m = model(nn::sine_spe(few));
  m.train();
  const RandomState before = random_state();
  const auto first = position_measures(m, 32, 48, 1);
  CHECK(random_state().next_stream == before.next_stream);
  CHECK((m.training() && m.layers[0].self_attention().training()));
  const auto again = position_measures(m, 32, 48, 1), other = position_measures(m, 32, 48, 2);
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(again[i].invariance == first[i].invariance);
    CHECK(again[i].monotonicity == first[i].monotonicity);
    CHECK(other[i].invariance != first[i].invariance);
  }
}
