// Which tokens may follow in a groove.
#include "examples/groove/groove_grammar.h"

#include <algorithm>
#include <stdexcept>

#include "examples/groove/groove_tokens.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

GrooveGrammar after(const std::vector<int64_t>& tokens, ShiftRule shifts = ShiftRule::as_encoded) {
  GrooveGrammar grammar(shifts);
  for (const int64_t token : tokens) grammar.see(token);
  return grammar;
}

int64_t on(int pitch) { return note_on_token(0, pitch); }
int64_t off(int pitch) { return note_off_token(0, pitch); }

}  // namespace

TEST_CASE("a groove begins with notes, shifts or its end", "[examples][groove]") {
  const GrooveGrammar grammar;
  const std::vector<int64_t> forbidden = grammar.forbidden();
  CHECK(forbidden.size() == 384 + 1);  // all note-offs, and the start
  CHECK(forbidden.front() == 384);
  CHECK(forbidden.back() == groove_start);
  CHECK(std::is_sorted(forbidden.begin(), forbidden.end()));
  CHECK(grammar.allows(groove_end));
  CHECK(grammar.time() == 0);
}

TEST_CASE("notes can end only as often as they began", "[examples][groove]") {
  CHECK(after({on(40)}).allows(off(40)));
  CHECK(after({on(40)}).allows(on(40)));  // a second note-on
  CHECK_FALSE(after({on(40)}).allows(off(41)));
  CHECK_FALSE(after({on(40)}).allows(note_off_token(2, 40)));
  CHECK(after({on(40), on(40), off(40)}).allows(off(40)));
  CHECK_FALSE(after({on(40), on(40), off(40), off(40)}).allows(off(40)));
  CHECK(
      after({off(40), off(40), on(40)}).allows(off(40)));  // note-offs without a note do not count
  CHECK_THROWS_AS(after({794}), std::invalid_argument);
}

TEST_CASE("time shifts only move forward, from the current phase within the beat",
          "[examples][groove]") {
  const std::vector<int64_t> prompt{time_shift_token(2, 0), time_shift_token(1, 7), on(40)};
  const GrooveGrammar grammar = after(prompt);
  CHECK(grammar.time() == 43);
  for (int tick = 1; tick < 12; ++tick)
    CHECK(grammar.allows(time_shift_token(0, tick)) == (tick >= 7));
  // One shift to the same phase is allowed, no second one; none with the published rule.
  const int64_t again = time_shift_token(0, 7);
  CHECK_FALSE(after({again}).allows(again));
  CHECK_FALSE(after({again, on(40), again}).allows(again));
  CHECK(after({again, on(40), again, off(40)}).allows(again));
  CHECK_FALSE(after({again, on(40)}, ShiftRule::forward).allows(again));
  CHECK(after({again, on(40)}, ShiftRule::forward).allows(time_shift_token(0, 8)));
  for (int tick = 0; tick < 12; ++tick) CHECK(grammar.allows(time_shift_token(1, tick)));
  CHECK(grammar.allows(time_shift_token(2, 0)));
  CHECK(after({time_shift_token(0, 7), time_shift_token(1, 0)}).allows(time_shift_token(0, 1)));
  CHECK(after({on(40), time_shift_token(1, 0), on(40)}).forbidden() ==
        after({on(40), time_shift_token(1, 0), on(40)}, ShiftRule::forward).forbidden());
  CHECK(after({time_shift_token(0, 7), time_shift_token(0, 2)}).time() ==
        2);  // see() accepts it nevertheless
}

TEST_CASE("the grammar allows all encoded grooves", "[examples][groove]") {
  PortableRandom random(10);
  for (int n = 0; n < 20; ++n) {
    GrooveGrammar grammar;
    bool redundant = false;
    GrooveGrammar published(ShiftRule::forward);
    for (const int64_t token : to_tokens(random_groove(random, 20))) {
      CHECK(grammar.allows(token));
      redundant = redundant || !published.allows(token);
      grammar.see(token);
      published.see(token);
    }
    CHECK(redundant);
    CHECK(grammar.allows(groove_end));
  }
}

TEST_CASE("allowed tokens decode to one note per note-off", "[examples][groove]") {
  PortableRandom random(9);
  for (int n = 0; n < 20; ++n) {
    GrooveGrammar grammar;
    std::vector<int64_t> tokens;
    int64_t ends = 0;
    while (tokens.size() < 300) {
      const int64_t token = random.below(int(groove_vocabulary));
      if (token == groove_end || !grammar.allows(token)) continue;
      const int64_t before = grammar.time();
      grammar.see(token);
      tokens.push_back(token);
      ends += token >= 384 && token < 768;
      CHECK(grammar.time() >= before);
      if (token < 768) CHECK(grammar.time() == before);
    }
    size_t notes = 0;
    for (const auto& track : to_groove(tokens).tracks) notes += track.notes.size();
    CHECK(int64_t(notes) == ends);
  }
}
