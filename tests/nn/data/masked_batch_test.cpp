// Masked language modeling: tokens that are hidden and must be predicted.
#include "nn/data/masked_batch.h"

#include <cmath>
#include <map>

#include "ops/create.h"
#include "tests/support/catch.h"

using namespace stretto;
using Ids = std::vector<int64_t>;

namespace {

constexpr nn::MaskingOptions bert{.vocabulary = 50, .mask_token = 3};

// Within five standard deviations of the expected number of n samples with probability p.
void check_share(int64_t count, int64_t n, double p) {
  CHECK(std::abs(double(count) - double(n) * p) < 5 * std::sqrt(double(n) * p * (1 - p)));
}

}  // namespace

TEST_CASE("masked_batch: 15 % are predicted: 80 % of these masked, 10 % random, 10 % unchanged",
          "[masked]") {
  constexpr int64_t n = 100 * 400;
  Ids ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i % 50);
  nn::MaskingOptions o = bert;
  o.special = {0, 1};
  const nn::Batch batch = nn::masked_batch(tensor(ids, {100, 400}), o, 7, 2);
  CHECK(batch.inputs.shape() == Shape{100, 400});
  CHECK(batch.targets.shape() == Shape{100, 400});
  const Ids in = batch.inputs.to_vector<int64_t>(), targets = batch.targets.to_vector<int64_t>();
  int64_t chosen = 0, hidden = 0, replaced = 0;
  std::map<int64_t, int64_t> drawn;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (targets[i] == nn::ignore_index) {
      CHECK(in[i] == ids[i]);
      continue;
    }
    CHECK(targets[i] == ids[i]);
    CHECK((ids[i] != 0 && ids[i] != 1 && ids[i] != 3));
    ++chosen;
    hidden += in[i] == 3;
    if (in[i] == 3 || in[i] == ids[i]) continue;
    ++replaced;
    ++drawn[in[i]];
  }
  check_share(chosen, n * 47 / 50, 0.15);
  check_share(hidden, chosen, 0.8);
  check_share(replaced, chosen, 0.1 * 46 / 47);  // 1 in 47 samples is the token itself
  CHECK(drawn.size() == 47);
  for (const int64_t special : {0, 1, 3}) CHECK(drawn.count(special) == 0);
}

TEST_CASE("masked_batch is a function of its arguments", "[masked]") {
  const Tensor tokens = tensor(Ids(600, 9), {20, 30});
  const auto inputs = [&](uint64_t seed, int64_t step) {
    return nn::masked_batch(tokens, bert, seed, step).inputs.to_vector<int64_t>();
  };
  CHECK(inputs(1, 2) == inputs(1, 2));
  CHECK(inputs(1, 2) != inputs(1, 3));
  CHECK(inputs(1, 2) != inputs(2, 2));
  const nn::Batch narrow = nn::masked_batch(tokens.to(i32), bert, 1, 2);
  CHECK(narrow.inputs.dtype() == i64);
  CHECK(narrow.inputs.to_vector<int64_t>() == inputs(1, 2));
  // No tokens, or all of them.
  const auto with = [&](double share, double masked, double random) {
    return nn::masked_batch(
        tokens,
        {.vocabulary = 50, .mask_token = 3, .share = share, .masked = masked, .random = random}, 1,
        2);
  };
  CHECK(with(0, 0.8, 0.1).targets.to_vector<int64_t>() == Ids(600, nn::ignore_index));
  CHECK(with(1, 1, 0).inputs.to_vector<int64_t>() == Ids(600, 3));
  CHECK(with(1, 0, 0).inputs.to_vector<int64_t>() == Ids(600, 9));
  CHECK(with(1, 0, 0).targets.to_vector<int64_t>() == Ids(600, 9));
}

TEST_CASE("masked_batch: errors", "[masked]") {
  const Tensor tokens = tensor(Ids{1, 2}, {1, 2});
  const auto refused = [&](const nn::MaskingOptions& o, const std::string& text) {
    CHECK_THROWS_WITH(nn::masked_batch(tokens, o, 1, 1), text);
  };
  refused({},
          "[masked_batch] vocabulary 0, mask_token 0; vocabulary must be at least 1, and "
          "mask_token one of its ids");
  refused({.vocabulary = 4, .mask_token = 4},
          "[masked_batch] vocabulary 4, mask_token 4; vocabulary must be at least 1, and "
          "mask_token one of its ids");
  refused({.vocabulary = 4, .masked = 0.9, .random = 0.2},
          "[masked_batch] share 0.15, masked 0.9, random 0.2; must be probabilities, masked + "
          "random at most 1");
  refused({.vocabulary = 4, .special = {4}}, "[masked_batch] special token 4; must be 0 to 3");
  refused({.vocabulary = 3, .special = {1, 2}},
          "[masked_batch] random is 0.1, but all 3 ids are special, so no random token can be "
          "drawn; set random to 0, or leave an id that is not special");
  refused({.vocabulary = 2}, "[masked_batch] token 2; must be 0 to 1");
  CHECK_THROWS_WITH(nn::masked_batch(zeros({2, 2}), bert, 1, 1),
                    "[masked_batch] tokens f32 [2, 2]; must be i64 or i32 [B, L]");
}

TEST_CASE("masked_batch never selects padding", "[masked]") {
  const nn::PaddedRows rows = nn::pad_rows({{9, 9, 9}, {9}}, 0, 9);  // padding like a token
  const nn::Batch batch = nn::masked_batch(
      rows, {.vocabulary = 50, .mask_token = 3, .share = 1, .masked = 1, .random = 0}, 1, 2);
  constexpr int64_t none = nn::ignore_index;
  CHECK(batch.inputs.to_vector<int64_t>() == Ids{3, 3, 3, 3, 9, 9});
  CHECK(batch.targets.to_vector<int64_t>() == Ids{9, 9, 9, 9, none, none});
  CHECK(batch.padding.to(i64).to_vector<int64_t>() == Ids{0, 0, 0, 0, 1, 1});
  // The tokens of rows without padding are masked as those of a tensor.
  const nn::PaddedRows full = nn::pad_rows({Ids(30, 9), Ids(30, 8)});
  CHECK(nn::masked_batch(full, bert, 1, 2).inputs.to_vector<int64_t>() ==
        nn::masked_batch(full.tokens, bert, 1, 2).inputs.to_vector<int64_t>());
  CHECK_FALSE(nn::masked_batch(full.tokens, bert, 1, 2).padding.defined());
  CHECK_THROWS_WITH(nn::masked_batch({rows.tokens, full.padding}, bert, 1, 2),
                    Containing("padding bool [2, 30]") && Containing("; shapes must be equal"));
}
