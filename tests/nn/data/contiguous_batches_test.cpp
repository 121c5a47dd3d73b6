// Segments of token streams, for training and for evaluation.
#include "nn/data/contiguous_batches.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

std::vector<int64_t> counting(int n) {
  std::vector<int64_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(i);
  return tokens;
}

}  // namespace

TEST_CASE("training segments continue the columns of the segment before", "[segments]") {
  for (const auto& [n, batch, length] :
       {std::tuple(103, 4, 7), {24, 3, 8}, {27, 3, 8}, {4, 2, 8}, {50, 1, 1}}) {
    const nn::ContiguousBatches segments(counting(n), batch, length);
    const int64_t column = n / batch;
    INFO(n << " tokens, " << batch << " columns, length " << length);
    std::vector<std::vector<int64_t>> inputs(static_cast<size_t>(batch)), targets(inputs);
    for (int64_t step = 0; step < segments.per_epoch(); ++step) {
      const nn::Batch s = segments(step);
      CHECK(segments.starts_epoch(step) == (step == 0));
      REQUIRE(s.inputs.shape() == s.targets.shape());
      REQUIRE(s.inputs.size(0) == batch);
      CHECK(s.inputs.size(1) <= length);
      if (step + 1 < segments.per_epoch()) CHECK(s.inputs.size(1) == length);
      for (int b = 0; b < batch; ++b) {
        for (int64_t x : s.inputs[b].to_vector<int64_t>()) inputs[size_t(b)].push_back(x);
        for (int64_t x : s.targets[b].to_vector<int64_t>()) targets[size_t(b)].push_back(x);
      }
    }
    for (int b = 0; b < batch; ++b) {
      std::vector<int64_t> expected;
      for (int64_t i = 0; i < column; ++i) expected.push_back(b * column + i);
      CHECK(targets[size_t(b)] == std::vector<int64_t>(expected.begin() + 1, expected.end()));
      expected.pop_back();
      CHECK(inputs[size_t(b)] == expected);
    }
    const nn::Batch again = segments(segments.per_epoch());
    CHECK(segments.starts_epoch(segments.per_epoch()));
    CHECK(again.inputs.to_vector<int64_t>() == segments(0).inputs.to_vector<int64_t>());
  }
  CHECK(error_of<Error>([] { nn::ContiguousBatches(counting(7), 4, 2); }) ==
        "[ContiguousBatches] 7 tokens in 4 columns; each must have at least 2");
  const auto refused = [](int batch, int length) {
    CHECK(
        error_of<Error>([&] { nn::ContiguousBatches(counting(9), batch, length); }) ==
        str("[ContiguousBatches] batch ", batch, ", length ", length, "; both must be at least 1"));
  };
  refused(0, 2), refused(-1, 2), refused(2, 0), refused(2, -1);
}

TEST_CASE("every held-out token except the first is scored once", "[segments]") {
  for (const int n : {2, 5, 17, 100}) {
    for (const nn::EvaluationWindows rule : {nn::EvaluationWindows{8, 0, 8},
                                             {8, 0, 3},
                                             {8, 0, 1},
                                             {8, 0, 0},
                                             {200, 0, 50},
                                             {8, 16, 8},
                                             {8, 1, 8},
                                             {1, 4, 1},
                                             {200, 8, 200}}) {
      for (const int64_t batch : {1, 3, 64}) {
        const int64_t groups = 1 + (batch + n) % 4;
        INFO(n << " tokens, length " << rule.length << ", memory " << rule.memory << ", stride "
               << rule.stride << ", batch " << batch << ", groups " << groups);
        std::map<int64_t, int> scored;
        std::vector<int64_t> last(size_t(batch), -1);  // the newest input of each column
        bool first_row = true;
        int64_t began = 0, rows = 0;
        const auto see = [&](const nn::Batch& s, bool begins) {
          began += begins;
          if (begins) {
            rows += s.inputs.size(0);
            std::fill(last.begin(), last.end(), -1);
          }
          REQUIRE(s.inputs.size(0) <= batch);
          const int64_t length = s.inputs.size(1);
          REQUIRE(length <= rule.length);
          const auto inputs = s.inputs.to_vector<int64_t>(),
                     targets = s.targets.to_vector<int64_t>();
          for (size_t i = 0; i < inputs.size(); ++i) {
            if (targets[i] == nn::ignore_index) continue;
            ++scored[targets[i]];
            CHECK(targets[i] == inputs[i] + 1);
            const int64_t position = int64_t(i) % length;
            const size_t row = i / size_t(length);
            if (rule.memory > 0) {  // without a gap, so that the memory is valid
              if (last[row] >= 0) CHECK(inputs[i] == last[row] + 1);
              last[row] = inputs[i];
            } else if (!(first_row && row == 0)) {
              CHECK(position >= length - (rule.stride > 0 ? rule.stride : rule.length));
            }
          }
          first_row = false;
        };
        nn::for_each_evaluation_window(counting(n), rule, batch, see, groups);
        if (rule.memory > 0) {
          CHECK(rows == std::clamp<int64_t>((n - 1) / rule.length, 1, batch));
          CHECK(began == std::min(rows, groups));
        }
        CHECK(scored.size() == size_t(n - 1));
        CHECK(scored.begin()->first == 1);
        CHECK(std::all_of(scored.begin(), scored.end(), [](auto& s) { return s.second == 1; }));
      }
    }
  }
}

TEST_CASE("windows that would skip tokens or never end are errors", "[segments]") {
  const auto error = [](nn::EvaluationWindows windows, int64_t batch = 2, int64_t groups = 1) {
    return error_of<Error>([&] {
      nn::for_each_evaluation_window(
          counting(20), windows, batch, [](const nn::Batch&, bool) {}, groups);
    });
  };
  CHECK(error({8, 0, 9}) ==
        "[for_each_evaluation_window] length 8, memory 0, stride 9, batch 2, groups 1; the stride "
        "must be 0 … length, the memory at least 0, the others at least 1");
  for (const nn::EvaluationWindows windows :
       {nn::EvaluationWindows{0, 0, 0}, {-1, 0, 0}, {8, 0, -1}, {8, -1, 8}})
    CHECK(error(windows).starts_with("[for_each_evaluation_window] length "));
  CHECK(error({8, 0, 8}, 0).starts_with("[for_each_evaluation_window] length 8"));
  CHECK(error({8, 4, 8}, 2, 0).starts_with("[for_each_evaluation_window] length 8"));
}
