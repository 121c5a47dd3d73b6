#include "music/tempo_map.h"

#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto::music;    // NOLINT
using namespace stretto::testing;  // NOLINT
using stretto::Error;

TEST_CASE("a tempo map without changes has 120 beats per minute", "[music]") {
  const TempoMap map({480, 0, 0});
  CHECK(map.seconds(0) == 0);
  CHECK(map.seconds(480) == 0.5);
  CHECK(map.tick(0.5) == 480);
  CHECK(map.beats(60) == 120);
  CHECK(map.changes().empty());
}

TEST_CASE("a tempo map converts between ticks, seconds and beats", "[music]") {
  // 100 ticks per beat: two beats of 0.5 s, one of 0.25 s, and beats of 1 s from tick 300. Of two
  // changes at tick 200 the later one counts.
  const TempoMap map({100, 0, 0}, {{300, 1000000}, {200, 900000}, {200, 250000}});
  REQUIRE(map.changes().size() == 3);
  CHECK(map.changes()[0].microseconds_per_quarter == 900000);
  CHECK(map.changes()[2].tick == 300);
  const std::vector<std::pair<double, double>> ticks_and_seconds = {
      {0, 0}, {100, 0.5}, {200, 1}, {240, 1.1}, {300, 1.25}, {400, 2.25}, {1e9, 9999998.25}};
  for (const auto& [tick, seconds] : ticks_and_seconds) {
    CHECK(map.seconds(tick) == Approx(seconds).epsilon(1e-14));
    CHECK(map.tick(seconds) == Approx(tick).epsilon(1e-13));
    CHECK(map.beats(seconds) == Approx(tick / 100).epsilon(1e-13));
  }
}

TEST_CASE("a change at tick 0 sets the tempo from the start", "[music]") {
  const TempoMap map({24, 0, 0}, {{0, 2000000}});
  CHECK(map.seconds(24) == 2);
  CHECK(map.tick(2) == 24);
  CHECK(map.beats(2) == 1);
}

TEST_CASE("SMPTE ticks have a fixed length; the tempo changes only the beats", "[music]") {
  const TempoMap map({0, 25, 40}, {{1000, 250000}});
  CHECK(map.seconds(1000) == 1);
  CHECK(map.seconds(3000) == 3);
  CHECK(map.tick(3) == 3000);
  CHECK(map.beats(1) == 2);  // beats of 0.5 s, then of 0.25 s
  CHECK(map.beats(3) == 10);
  CHECK(TempoMap({0, 30, 80}).seconds(2400) == Approx(1).epsilon(1e-15));
  CHECK(TempoMap({0, 29, 100}).seconds(2997) == Approx(2997 * 1001.0 / 3e6).epsilon(1e-15));
}

TEST_CASE("a tempo map rejects values out of range", "[music]") {
  const auto refusal = [](const MidiDivision& division, std::vector<TempoChange> changes) {
    return error_of<Error>([&] { TempoMap(division, changes); });
  };
  CHECK(refusal({-1, 0, 0}, {}) ==
        "[tempo_map] ticks_per_quarter is -1; expected 0 (SMPTE) to 32767");
  CHECK(refusal({32768, 0, 0}, {}) ==
        "[tempo_map] ticks_per_quarter is 32768; expected 0 (SMPTE) to 32767");
  CHECK(refusal({0, 0, 4}, {}) == "[tempo_map] frames_per_second is 0; expected 1 to 128");
  CHECK(refusal({0, 25, 256}, {}) == "[tempo_map] ticks_per_frame is 256; expected 1 to 255");
  CHECK(refusal({480, 0, 0}, {{-1, 500000}}) ==
        "[tempo_map] the tick of a change is -1; expected 0 or more");
  CHECK(refusal({480, 0, 0}, {{0, 0}}) ==
        "[tempo_map] microseconds_per_quarter is 0; expected 1 to 16777215");
  CHECK(refusal({480, 0, 0}, {{0, 1 << 24}}) ==
        "[tempo_map] microseconds_per_quarter is 16777216; expected 1 to 16777215");
}

}  // namespace
