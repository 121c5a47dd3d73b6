#include "music/infill.h"

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace {

using namespace stretto::music;  // NOLINT
using stretto::Error;
using stretto::testing::error_of;
using Tokens = std::vector<int64_t>;

}  // namespace

TEST_CASE("Infilling moves tokens to the end and back", "[music]") {
  const InfillTokens ids(10);
  CHECK(ids.hole == 10);
  CHECK(ids.fill == 11);
  CHECK(ids.end == 12);
  const Tokens piece{0, 1, 2, 0, 3, 0, 4};
  CHECK(infill_sequence(piece, 3, 5, ids) == Tokens{0, 1, 2, 10, 0, 4, 11, 0, 3, 12});
  CHECK(infill_prompt({0, 1, 2}, {0, 4}, ids) == Tokens{0, 1, 2, 10, 0, 4, 11});
  for (int64_t first = 0; first <= 7; ++first)
    for (int64_t last = first; last <= 7; ++last) {
      const Tokens sequence = infill_sequence(piece, first, last, ids);
      CHECK(sequence.size() == piece.size() + InfillTokens::count);
      CHECK(infilled(sequence, ids) == piece);
    }
  CHECK(infill_sequence({}, 0, 0, ids) == Tokens{10, 11, 12});
  CHECK(infilled({}, ids) == Tokens{});
  CHECK(infilled({0, 1, 10, 4, 11, 2, 3}, ids) == Tokens{0, 1, 2, 3, 4});  // not finished
  CHECK(infilled({0, 1, 10, 4}, ids) == Tokens{0, 1, 4});                  // nothing was filled in
  CHECK(infilled({0, 11, 2, 12, 7}, ids) == Tokens{0, 2});                 // no hole
  CHECK(infilled({12, 11, 10, 10, 11}, ids) == Tokens{});
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{-1, 2}, {3, 2}, {0, 8}})
    CHECK_THAT(error_of<Error>([&, f = first, l = last] { infill_sequence(piece, f, l, ids); }),
               Containing("[infill_sequence] tokens "));
}

TEST_CASE("Bars begin at each bar token", "[music]") {
  CHECK(bar_starts({0, 1, 2, 0, 3, 0, 4}, 0) == std::vector<int64_t>{0, 3, 5});
  CHECK(bar_starts({1, 2}, 0).empty());
  CHECK(bar_starts({}, 0).empty());
}
