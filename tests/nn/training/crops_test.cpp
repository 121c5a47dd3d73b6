// Crops of token streams, and batches of sequences.
#include "nn/training/crops.h"

#include <set>

#include "tests/support/catch.h"

using namespace stretto;  // NOLINT
using Numbers = std::vector<int64_t>;

TEST_CASE("Random crops are pieces of the stream, each beginning as likely", "[crops]") {
  std::vector<int32_t> tokens(12);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int32_t(i);
  const nn::RandomCrops crops(tokens, 5, 4, 7);
  std::vector<int64_t> begins(8);
  for (int64_t step = 0; step < 400; ++step) {
    const nn::Batch batch = crops(step);
    REQUIRE(batch.inputs.shape() == Shape{5, 4});
    const Numbers in = batch.inputs.to_vector<int64_t>(), out = batch.targets.to_vector<int64_t>();
    for (size_t i = 0; i < in.size(); ++i) {
      CHECK(out[i] == in[i] + 1);
      CHECK(in[i] == in[i - i % 4] + int64_t(i % 4));
    }
    for (size_t row = 0; row < 5; ++row) ++begins[size_t(in[4 * row])];
  }
  for (const int64_t n : begins) CHECK(std::abs(n - 250) < 4 * 15);  // deviation 14.8
  CHECK(crops(3).inputs.to_vector<int64_t>() == crops(3).inputs.to_vector<int64_t>());
  CHECK(crops(3).inputs.to_vector<int64_t>() != crops(4).inputs.to_vector<int64_t>());
  CHECK(crops(3).inputs.to_vector<int64_t>() !=
        nn::RandomCrops(tokens, 5, 4, 8)(3).inputs.to_vector<int64_t>());
  CHECK_THROWS_WITH(nn::RandomCrops(tokens, 1, 12, 0), Containing("1 crops of 12 from 12 tokens"));
}

TEST_CASE("Sequences of different lengths make a padded batch", "[crops]") {
  const nn::Batch batch = nn::next_token_batch({{1, 2, 3}, {4}, {}}, 0, 9);
  CHECK(batch.inputs.shape() == Shape{3, 2});
  CHECK(batch.inputs.to_vector<int64_t>() == Numbers{1, 2, 4, 9, 9, 9});
  constexpr int64_t none = nn::not_scored;
  CHECK(batch.targets.to_vector<int64_t>() == Numbers{2, 3, none, none, none, none});
  CHECK(nn::next_token_batch({{1, 2}}, 3).inputs.to_vector<int64_t>() == Numbers{1, 2, 0});
  CHECK_THROWS_WITH(nn::next_token_batch({{1, 2, 3}}, 1), Containing("3 tokens and length 1"));
  CHECK_THROWS_WITH(nn::next_token_batch({{1}}),
                    Containing("[next_token_batch] a longest sequence of 1 tokens"));
}
