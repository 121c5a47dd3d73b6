#include <algorithm>
#include <map>
#include <set>

#include "examples/chorales/chorale_tokens.h"
#include "examples/common/portable_random.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace {

using namespace stretto;            // NOLINT
using namespace stretto::examples;  // NOLINT
using Tokens = std::vector<int64_t>;

/// A piece with different steps: soprano and bass count them.
Chorale counting(int steps, int number = 0) {
  Chorale chorale;
  for (int i = 0; i < steps; ++i)
    chorale.steps.push_back({60 + i % 12, 50 + number, -1, 20 + i / 12});
  return chorale;
}

Tokens row(const Tensor& x, int64_t b) { return x[b].to_vector<int64_t>(); }

/// The index of the step of counting() that four tokens, transposed by `semitones`, encode.
int step_of(const int64_t* tokens, int semitones) {
  return int(tokens[0] - pitch_token - 60 - semitones) +
         12 * int(tokens[3] - pitch_token - 20 - semitones);
}

}  // namespace

TEST_CASE("chorales are the same after conversion to tokens and back", "[examples]") {
  const Chorale piece{{{{60, 55, -1, 0}}, {{127, 1, 2, 3}}}};
  const Tokens tokens = to_tokens(piece);
  CHECK(tokens == Tokens{63, 58, 2, 3, 130, 4, 5, 6});
  CHECK(to_chorale(tokens).steps == piece.steps);
  CHECK(to_tokens({}).empty());
  CHECK(to_chorale({}).steps.empty());
}

TEST_CASE("transposed tokens keep silences and intervals", "[examples]") {
  const Chorale piece = counting(5);
  for (const int semitones : {-20, -1, 0, 7, 60}) {
    Chorale moved = to_chorale(to_tokens(piece, semitones));
    REQUIRE(moved.steps.size() == 5);
    for (auto& step : moved.steps)
      for (int& pitch : step)
        if (pitch >= 0) pitch -= semitones;
    CHECK(moved.steps == piece.steps);
  }
  CHECK_THROWS_WITH(to_tokens(piece, -21), Containing("a pitch leaves 0"));
  CHECK_THROWS_WITH(to_tokens(piece, 64), Containing("a pitch leaves 0"));
}

TEST_CASE("decoding stops at the first token that is not a pitch or silence", "[examples]") {
  const Chorale piece = counting(3);
  const Tokens good = to_tokens(piece);
  for (const int64_t bad :
       {start_token, end_token, chorale_vocabulary, int64_t(-1), int64_t(1) << 40}) {
    for (size_t i = 0; i < good.size(); ++i) {
      Tokens tokens = good;
      tokens[i] = bad;
      CHECK(to_chorale(tokens).steps.size() == i / 4);  // complete steps only
    }
  }
  for (size_t n = 0; n <= good.size(); ++n)
    CHECK(to_chorale(Tokens(good.begin(), good.begin() + long(n))).steps.size() == n / 4);
}

TEST_CASE("crops begin at a step, and targets are the next tokens", "[examples]") {
  const int steps = GENERATE(1, 7, 8, 9, 40);
  const int64_t length = 32;
  const std::vector<Chorale> pieces{counting(steps)};
  Tokens whole = to_tokens(pieces[0]);
  whole.push_back(end_token);
  std::set<int64_t> begins;
  bool end_seen = false;
  for (int64_t step = 0; step < 200; ++step) {
    const nn::Batch batch = training_batch(pieces, {4, length, 0}, 3, step);
    REQUIRE(batch.inputs.shape() == Shape{4, length});
    REQUIRE(batch.targets.shape() == Shape{4, length});
    for (int64_t b = 0; b < 4; ++b) {
      const Tokens inputs = row(batch.inputs, b), targets = row(batch.targets, b);
      const int64_t begin = step_of(targets.data(), 0) * 4;
      REQUIRE(begin >= 0);
      begins.insert(begin);
      CHECK(inputs[0] == (begin == 0 ? start_token : whole[size_t(begin - 1)]));
      for (int64_t i = 0; i < length; ++i) {
        const bool inside = begin + i < int64_t(whole.size());
        CHECK(targets[size_t(i)] == (inside ? whole[size_t(begin + i)] : nn::ignore_index));
        if (i > 0 && inside) CHECK(inputs[size_t(i)] == targets[size_t(i - 1)]);
        end_seen |= targets[size_t(i)] == end_token;
      }
    }
  }
  CHECK(end_seen);
  // All crops occur, from the first to the first that contains the end.
  const int64_t last = (std::max<int64_t>(0, 4 * steps + 1 - length) + 3) / 4 * 4;
  CHECK(int64_t(begins.size()) == last / 4 + 1);
  CHECK(*begins.rbegin() == last);
}

TEST_CASE("pieces are sampled in proportion to their length", "[examples]") {
  const std::vector<Chorale> pieces{counting(10, 1), counting(30, 2)};
  std::map<int64_t, int> drawn;
  for (int64_t step = 0; step < 500; ++step)
    for (int64_t alto :
         training_batch(pieces, {4, 4, 0}, 1, step).inputs.slice(1, 2, 3).to_vector<int64_t>())
      ++drawn[alto];
  const int first = drawn[pitch_token + 51], second = drawn[pitch_token + 52];
  CHECK(first + second > 1800);  // the others begin at an end
  CHECK(double(second) / first == Approx(3).epsilon(0.2));
}

TEST_CASE("crops are transposed by all intervals that keep pitches in range", "[examples]") {
  const auto intervals = [](const Chorale& piece, int transpose) {
    const Tokens tokens = to_tokens(piece);
    std::set<int64_t> all;
    for (int64_t step = 0; step < 100; ++step) {
      const Tokens moved = row(training_batch({piece}, {1, 8, transpose}, 1, step).targets, 0);
      const int64_t interval = moved[0] - tokens[0];
      for (size_t i = 0; i < 4; ++i)
        CHECK(moved[i] == tokens[i] + (tokens[i] == silence_token ? 0 : interval));
      all.insert(interval);
    }
    return all;
  };
  using Intervals = std::set<int64_t>;
  CHECK(intervals({{{{60, 50, -1, 20}}}}, 3) == Intervals{-3, -2, -1, 0, 1, 2, 3});
  CHECK(intervals({{{{60, 50, -1, 20}}}}, 0) == Intervals{0});
  CHECK(intervals({{{{126, 50, -1, 20}}}}, 2) == Intervals{-2, -1, 0, 1});
  CHECK(intervals({{{{60, 50, -1, 0}}}}, 2) == Intervals{0, 1, 2});
  CHECK(intervals({{{{127, 50, 50, 0}}}}, 2) == Intervals{0});
  CHECK(intervals({{{{-1, -1, -1, -1}}}}, 2) == Intervals{0});
}

TEST_CASE("a training batch depends only on the seed and the step", "[examples]") {
  const std::vector<Chorale> pieces{counting(50, 1), counting(90, 2)};
  const auto batch = [&](uint64_t seed, int64_t step) {
    return training_batch(pieces, {4, 64, 5}, seed, step).inputs;
  };
  manual_seed(1);
  const Tensor first = batch(1, 7);
  const RandomState state = random_state();
  batch(1, 8);
  CHECK(random_state().next_stream == state.next_stream);  // the global random state is unchanged
  manual_seed(2);
  CHECK(testing::same_bits(first, batch(1, 7)));
  CHECK_FALSE(testing::same_bits(first, batch(1, 8)));
  CHECK_FALSE(testing::same_bits(first, batch(2, 7)));
}

TEST_CASE("every token is scored once, with the context that length and stride promise",
          "[examples]") {
  const int64_t length = 16;
  const int64_t stride = GENERATE(1, 3, 4, 16);
  const std::vector<int> sizes{1, 3, 4, 5, 8, 21};  // shorter and longer than a window
  std::vector<Chorale> pieces;
  for (int i = 0; i < int(sizes.size()); ++i) pieces.push_back(counting(sizes[size_t(i)], i));

  std::vector<std::vector<int>> scored;
  for (int size : sizes) scored.emplace_back(4 * size);
  scoring_batches(pieces, length, stride, 3, [&](const nn::Batch& batch) {
    REQUIRE(batch.inputs.size(1) == length);
    CHECK(batch.inputs.size(0) <= 3);
    for (int64_t b = 0; b < batch.inputs.size(0); ++b) {
      const Tokens inputs = row(batch.inputs, b), targets = row(batch.targets, b);
      // Find the only window of all pieces with these inputs.
      int found = 0;
      for (size_t p = 0; p < pieces.size(); ++p) {
        Tokens seen = to_tokens(pieces[p]);
        const int64_t n = int64_t(seen.size());
        seen.insert(seen.begin(), start_token);
        for (int64_t begin = 0; begin == 0 || begin + length <= n; ++begin) {
          const int64_t known = std::min(length, n + 1 - begin);
          if (!std::equal(seen.begin() + begin, seen.begin() + begin + known, inputs.begin()) ||
              (known < length && inputs[size_t(known)] != end_token))
            continue;
          ++found;
          for (int64_t i = 0; i < length; ++i) {
            if (targets[size_t(i)] == nn::ignore_index) continue;
            REQUIRE(begin + i < n);
            CHECK(targets[size_t(i)] == seen[size_t(begin + i + 1)]);
            CHECK((begin == 0 || i >= length - stride));
            ++scored[p][size_t(begin + i)];
          }
        }
      }
      CHECK(found == 1);
    }
  });
  for (const auto& piece : scored)
    for (int times : piece) CHECK(times == 1);
}

TEST_CASE("scoring rejects strides that would skip tokens", "[examples]") {
  for (const int64_t stride : {0, 17})
    CHECK_THROWS_AS(scoring_batches({counting(9)}, 16, stride, 1, [](const nn::Batch&) {}),
                    std::invalid_argument);
}
