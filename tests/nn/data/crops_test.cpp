// Crops of token streams, and batches of sequences.
#include "nn/data/crops.h"

#include <cmath>
#include <set>

#include "nn/data/draws.h"
#include "tests/support/catch.h"

using namespace stretto;  // NOLINT
using Numbers = std::vector<int64_t>;

TEST_CASE("Random crops are contiguous, and every start is equally likely", "[crops]") {
  std::vector<int64_t> tokens(12);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int64_t(i);
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
  for (const int64_t n : begins) CHECK(std::abs(n - 250) < 4 * 15);  // standard deviation 14.8
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
  constexpr int64_t none = nn::ignore_index;
  CHECK(batch.targets.to_vector<int64_t>() == Numbers{2, 3, none, none, none, none});
  CHECK(nn::next_token_batch({{1, 2}}, 3).inputs.to_vector<int64_t>() == Numbers{1, 2, 0});
  CHECK_THROWS_WITH(nn::next_token_batch({{1, 2, 3}}, 1), Containing("3 tokens, length is 1;"));
  CHECK_THROWS_WITH(nn::next_token_batch({{1}}),
                    Containing("[next_token_batch] the longest sequence has 1 tokens"));
}

TEST_CASE("prompted_batch: only the tokens of answers are targets", "[data]") {
  const nn::Batch batch = nn::prompted_batch({{{1, 2, 3}, {4, 5}}, {{6}, {7}}, {{8, 9}, {}}}, 5, 1);
  CHECK(batch.inputs.to_vector<int64_t>() == Numbers{1, 2, 3, 4, 5, 6, 7, 1, 1, 1, 8, 9, 1, 1, 1});
  constexpr int64_t no = nn::ignore_index;
  CHECK(batch.targets.to_vector<int64_t>() ==
        Numbers{no, no, 4, 5, no, 7, no, no, no, no, no, no, no, no, no});
  CHECK_THROWS_WITH(nn::prompted_batch({{{}, {1}}}),
                    "[prompted_batch] prompt 0 is empty; must have at least one token");
}

TEST_CASE("Aligned crops cut all streams at the same positions", "[crops]") {
  std::vector<int64_t> tokens(12), tags(12);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = int64_t(i), tags[i] = int64_t(100 - 3 * i);
  const nn::AlignedCrops crops({tokens, tags}, 5, 4, 7);
  std::vector<int64_t> begins(9);
  for (int64_t step = 0; step < 400; ++step) {
    const Tensors batch = crops(step);
    REQUIRE(batch.size() == 2);
    for (const Tensor& x : batch) REQUIRE(x.shape() == Shape{5, 4});
    const Numbers a = batch[0].to_vector<int64_t>(), b = batch[1].to_vector<int64_t>();
    for (size_t i = 0; i < a.size(); ++i) {
      CHECK(b[i] == 100 - 3 * a[i]);
      CHECK(a[i] == a[i - i % 4] + int64_t(i % 4));
    }
    for (size_t row = 0; row < 5; ++row) ++begins[size_t(a[4 * row])];
  }
  for (const int64_t n : begins) CHECK(std::abs(n - 2000 / 9) < 4 * 15);  // standard deviation 14.1
  CHECK(crops(3)[1].to_vector<int64_t>() == crops(3)[1].to_vector<int64_t>());
  CHECK(crops(3)[1].to_vector<int64_t>() != crops(4)[1].to_vector<int64_t>());
  // A stream and the same stream shifted by one token: the crops of next tokens.
  const nn::RandomCrops next(tokens, 5, 4, 7);
  const nn::AlignedCrops by_hand({std::vector<int64_t>(tokens.begin(), tokens.end() - 1),
                                  std::vector<int64_t>(tokens.begin() + 1, tokens.end())},
                                 5, 4, 7);
  CHECK(by_hand(6)[0].to_vector<int64_t>() == next(6).inputs.to_vector<int64_t>());
  CHECK(by_hand(6)[1].to_vector<int64_t>() == next(6).targets.to_vector<int64_t>());

  CHECK_NOTHROW(nn::AlignedCrops({tokens}, 1, 12, 0));
  CHECK_THROWS_WITH(nn::AlignedCrops({}, 1, 4, 0), "[AlignedCrops] no streams; needs at least one");
  CHECK_THROWS_WITH(nn::AlignedCrops({tokens, std::vector<int64_t>(11)}, 1, 4, 0),
                    "[AlignedCrops] streams of 12 and 11 tokens; all must be equally long");
  CHECK_THROWS_WITH(nn::AlignedCrops({tokens}, 1, 13, 0),
                    Containing("1 crops of 13 from 12 tokens"));
}

TEST_CASE("Rows are padded to the longest row", "[crops]") {
  const nn::PaddedRows rows = nn::pad_rows({{1, 0, 3}, {4}, {}});
  CHECK(rows.tokens.to_vector<int64_t>() == Numbers{1, 0, 3, 4, 0, 0, 0, 0, 0});
  CHECK(rows.tokens.shape() == Shape{3, 3});
  CHECK(rows.padding.dtype() == boolean);
  CHECK(rows.padding.shape() == Shape{3, 3});
  // A token that equals the padding value is not padding.
  CHECK(rows.padding.to(i64).to_vector<int64_t>() == Numbers{0, 0, 0, 0, 1, 1, 1, 1, 1});
  CHECK(nn::pad_rows({{7}, {}}, 0, -1).tokens.to_vector<int64_t>() == Numbers{7, -1});
  CHECK(nn::pad_rows({}).tokens.shape() == Shape{0, 0});
  CHECK(nn::pad_rows({{}, {}}).padding.shape() == Shape{2, 0});
}

TEST_CASE("Rows are padded to a length", "[crops]") {
  const nn::PaddedRows rows = nn::pad_rows({{1, 2}, {3}}, 3, 9);
  CHECK(rows.tokens.to_vector<int64_t>() == Numbers{1, 2, 9, 3, 9, 9});
  CHECK(rows.padding.to(i64).to_vector<int64_t>() == Numbers{0, 0, 1, 0, 1, 1});
  CHECK_THROWS_WITH(nn::pad_rows({{1, 2, 3}}, 2),
                    "[pad_rows] the longest row has 3 tokens, length is 2; length must be 0, or at "
                    "least the longest row");
}

TEST_CASE("Batches of padded sequences have a class per sequence or a tag per token", "[crops]") {
  const std::vector<Numbers> sentences{{5, 6, 7}, {8}};
  const nn::Batch classes = nn::classification_batch(sentences, {2, 0});
  CHECK(classes.inputs.to_vector<int64_t>() == Numbers{5, 6, 7, 8, 0, 0});
  CHECK(classes.targets.to_vector<int64_t>() == Numbers{2, 0});
  CHECK(classes.targets.shape() == Shape{2});
  CHECK(classes.padding.to(i64).to_vector<int64_t>() == Numbers{0, 0, 0, 0, 1, 1});
  CHECK(classes.to(cpu).padding.defined());
  CHECK_FALSE(nn::next_token_batch(sentences).to(cpu).padding.defined());

  const nn::Batch tags = nn::tagging_batch(sentences, {{1, 0, 1}, {3}}, 4, 9);
  constexpr int64_t none = nn::ignore_index;
  CHECK(tags.inputs.to_vector<int64_t>() == Numbers{5, 6, 7, 9, 8, 9, 9, 9});
  CHECK(tags.targets.to_vector<int64_t>() == Numbers{1, 0, 1, none, 3, none, none, none});
  CHECK(tags.padding.to(i64).to_vector<int64_t>() == Numbers{0, 0, 0, 1, 0, 1, 1, 1});

  CHECK_THROWS_WITH(nn::classification_batch(sentences, {2}),
                    "[classification_batch] 2 sequences, 1 classes; needs a class for each "
                    "sequence");
  CHECK_THROWS_WITH(nn::tagging_batch(sentences, {{1}}),
                    "[tagging_batch] 2 sequences, 1 rows of tags; needs a row for each sequence");
  CHECK_THROWS_WITH(nn::tagging_batch(sentences, {{1, 0, 1}, {3, 3}}),
                    "[tagging_batch] sequence 1 has 1 tokens and 2 tags; needs a tag for each "
                    "token");
}

TEST_CASE("Draws are uniform below any number", "[data]") {
  for (const int64_t n : {int64_t(3), int64_t(1) << 32, int64_t(1) << 33, int64_t(3) << 40}) {
    CAPTURE(n);
    nn::Draws draws(5, 7);
    int64_t odd = 0, upper = 0;
    for (int i = 0; i < 1000; ++i) {
      const int64_t draw = draws.below(n);
      REQUIRE(draw >= 0);
      REQUIRE(draw < n);
      odd += draw % 2;
      upper += draw >= n - n / 3;
    }
    CHECK(std::abs(double(odd) - (n == 3 ? 333 : 500)) < 70);  // more than four standard deviations
    CHECK(std::abs(double(upper) - 333) < 65);
  }
}
