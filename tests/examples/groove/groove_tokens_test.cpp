// Grooves as tokens: ids, order, decoding, and unusual tokens.
#include "examples/groove/groove_tokens.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "examples/common/portable_random.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT
using Tokens = std::vector<int64_t>;
using Kind = GrooveEvent::Kind;

int64_t on(int track, int pitch) { return note_on_token(track, pitch); }
int64_t off(int track, int pitch) { return note_off_token(track, pitch); }
int64_t shift(int beats, int tick) { return time_shift_token(beats, tick); }

}  // namespace

TEST_CASE("groove tokens have the published ids", "[examples][groove]") {
  CHECK(on(0, 0) == 0);
  CHECK(on(1, 36) == 164);
  CHECK(on(2, 127) == 383);
  CHECK(off(0, 0) == 384);
  CHECK(off(2, 127) == 767);
  CHECK(shift(0, 1) == 768);
  CHECK(shift(0, 11) == 778);
  CHECK(shift(1, 0) == 779);
  CHECK(shift(1, 11) == 790);
  CHECK(shift(2, 0) == 791);
  CHECK(groove_end == 792);
  CHECK(groove_start == 793);
  for (int64_t token = 0; token < groove_vocabulary; ++token) {
    const GrooveEvent e = groove_event(token);
    const int64_t again = e.kind == Kind::note_on      ? on(e.first, e.second)
                          : e.kind == Kind::note_off   ? off(e.first, e.second)
                          : e.kind == Kind::time_shift ? shift(e.first, e.second)
                          : e.kind == Kind::end        ? groove_end
                                                       : groove_start;
    CHECK(again == token);
  }
  for (const int64_t token : {-1, 794})
    CHECK(error_of<std::invalid_argument>([&] { groove_event(token); }) ==
          "token " + std::to_string(token) + " is not in 0 .. 793");
}

TEST_CASE("groove tokens are ordered by time, then by note", "[examples][groove]") {
  Song groove = empty_groove();
  groove.tracks[2].notes = {{0, 12, 60, 90}, {0, 12, 64, 90}};
  groove.tracks[0].notes = {{0, 24, 36, 90}, {24, 3, 36, 90}};
  groove.tracks[1].notes = {{12, 3, 42, 90}, {0, 3, 36, 90}};
  CHECK(to_tokens(groove) ==
        // At tick 0: by pitch; equal pitches by duration, in any tracks.
        Tokens{on(1, 36), on(0, 36), on(2, 60), on(2, 64), shift(0, 3), off(1, 36),
               // At tick 12: note-offs before note-ons.
               shift(1, 0), off(2, 60), off(2, 64), on(1, 42), shift(0, 3), off(1, 42),
               // At tick 24: the same pitch ends and begins again.
               shift(1, 0), off(0, 36), on(0, 36), shift(0, 3), off(0, 36)});
  // Notes with equal time, pitch and duration are ordered by velocity, then by track.
  Song alike = empty_groove();
  alike.tracks[0].notes = {{0, 6, 50, 90}};
  alike.tracks[1].notes = {{0, 6, 50, 80}};
  alike.tracks[2].notes = {{0, 6, 50, 80}};
  const Tokens tokens = to_tokens(alike);
  CHECK(Tokens(tokens.begin(), tokens.begin() + 3) == Tokens{on(1, 50), on(2, 50), on(0, 50)});
  // A note of duration 0 ends before the next one at its tick begins.
  Song zero = empty_groove();
  zero.tracks[0].notes = {{0, 0, 40, 80}, {0, 2, 41, 80}};
  CHECK(to_tokens(zero) == Tokens{on(0, 40), off(0, 40), on(0, 41), shift(0, 2), off(0, 41)});
  CHECK(to_tokens(empty_groove()).empty());
}

TEST_CASE("time shifts move by beats, then to ticks; off the beat the tick is repeated",
          "[examples][groove]") {
  const auto shifts = [](int from, int to) {
    Song groove = empty_groove();  // the first note ends and the second begins at `to`
    groove.tracks[0].notes = {{from, to - from, 40, 80}, {to, 100, 41, 80}};
    const Tokens tokens = to_tokens(groove);
    const auto first = std::find(tokens.begin(), tokens.end(), on(0, 40)) + 1;
    return Tokens(first, std::find(tokens.begin(), tokens.end(), on(0, 41)));
  };
  CHECK(shifts(0, 5) == Tokens{shift(0, 5), off(0, 40), shift(0, 5)});  // with the redundant shift
  CHECK(shifts(3, 12) == Tokens{shift(1, 0), off(0, 40)});  // no redundant shift on the beat
  CHECK(shifts(3, 15) == Tokens{shift(1, 3), off(0, 40), shift(0, 3)});
  CHECK(shifts(3, 24) == Tokens{shift(2, 0), off(0, 40)});
  CHECK(shifts(3, 27) == Tokens{shift(2, 0), shift(0, 3), off(0, 40), shift(0, 3)});
  CHECK(shifts(3, 41) == Tokens{shift(2, 0), shift(1, 5), off(0, 40), shift(0, 5)});
  CHECK(shifts(11, 60) == Tokens{shift(2, 0), shift(2, 0), shift(1, 0), off(0, 40)});
  // From tick 3 to tick 3, the published example.
  Song same = empty_groove();
  same.tracks[0].notes = {{3, 1, 40, 80}, {3, 1, 41, 80}};
  CHECK(to_tokens(same) == Tokens{shift(0, 3), on(0, 40), shift(0, 3), on(0, 41), shift(0, 4),
                                  off(0, 40), shift(0, 4), off(0, 41)});
}

TEST_CASE("grooves are the same after conversion to tokens and back", "[examples][groove]") {
  PortableRandom random(5);
  for (int n = 0; n < 50; ++n) {
    const Song groove = random_groove(random, 1 + random.below(60));
    const Tokens tokens = to_tokens(groove);
    CHECK(same_notes(to_groove(tokens), groove));
    CHECK(to_tokens(to_groove(tokens)) == tokens);
    // Also without the redundant shifts.
    Tokens fewer;
    int64_t time = 0;
    for (const int64_t token : tokens) {
      const GrooveEvent event = groove_event(token);
      const bool still = event.kind == Kind::time_shift && event.from(time) == time;
      if (event.kind == Kind::time_shift) time = event.from(time);
      if (!still) fewer.push_back(token);
    }
    CHECK(fewer.size() < tokens.size());
    CHECK(same_notes(to_groove(fewer), groove));
    for (const size_t most : {size_t{0}, size_t{1}, tokens.size() / 2, tokens.size() + 1}) {
      const auto end = tokens.begin() + int64_t(std::min(most, tokens.size()));
      CHECK(to_tokens(groove, int64_t(most)) == Tokens(tokens.begin(), end));
    }
  }
}

TEST_CASE("sequences that no groove has can be decoded", "[examples][groove]") {
  const auto notes = [](const Tokens& tokens) { return to_groove(tokens).tracks[0].notes; };
  const auto note = [](int start, int duration, int pitch) {
    return Note{start, duration, pitch, 80};
  };
  // Two notes of the same pitch: the one that began first ends first.
  CHECK(same_notes(
      notes({on(0, 40), shift(1, 0), on(0, 40), shift(1, 0), off(0, 40), shift(1, 0), off(0, 40)}),
      {note(0, 24, 40), note(12, 24, 40)}));
  // Note-offs without a note, note-offs of another track, and notes without an end are ignored.
  CHECK(notes({off(0, 40), on(0, 40), off(1, 40), off(0, 41), shift(2, 0)}).empty());
  // Notes of duration 0, and time that goes back within a beat.
  CHECK(same_notes(notes({on(0, 40), off(0, 40)}), {note(0, 1, 40)}));
  CHECK(same_notes(notes({shift(0, 9), on(0, 40), shift(0, 2), off(0, 40)}), {note(9, 1, 40)}));
  // Start tokens are ignored, and decoding stops at the end token.
  CHECK(same_notes(notes({groove_start, on(0, 40), groove_start, shift(1, 1), off(0, 40),
                          groove_end, on(0, 41), shift(1, 0), off(0, 41)}),
                   {note(0, 13, 40)}));
  CHECK(notes({}).empty());

  PortableRandom random(6);
  for (int n = 0; n < 200; ++n) {
    Tokens tokens;
    for (int i = random.below(400); i > 0; --i) tokens.push_back(random.below(794));
    const Song groove = to_groove(tokens);
    int64_t count = 0;
    for (const Track& track : groove.tracks)
      for (const Note& each : track.notes) {
        CHECK((each.start >= 0 && each.duration >= 1 && each.pitch >= 0 && each.pitch <= 127));
        ++count;
      }
    CHECK(count <= std::count_if(tokens.begin(), tokens.end(), [](int64_t t) { return t < 384; }));
    CHECK_NOTHROW(midi_bytes(groove));
    // After encoding once, notes of one pitch end in the order in which they began.
    const Song again = to_groove(to_tokens(groove));
    CHECK(same_notes(to_groove(to_tokens(again)), again));
  }
}

TEST_CASE("grooves and tokens out of range are rejected", "[examples][groove]") {
  const std::string expected =
      "; expected times from 0, an end before tick 2^28 and a pitch of 0 "
      "to 127";
  const auto error_for = [](const Note& note) {
    Song groove = empty_groove();
    groove.tracks[1].notes = {note};
    return error_of<std::invalid_argument>([&] { to_tokens(groove); });
  };
  CHECK(error_for({-1, 2, 3, 80}) ==
        "a note of the drums has start -1, duration 2, pitch 3" + expected);
  CHECK_THAT(error_for({1, -2, 3, 80}), Containing("duration -2"));
  CHECK_THAT(error_for({1, 2, 128, 80}), Containing("pitch 128"));
  CHECK_THAT(error_for({1 << 28, 0, 3, 80}), Containing("start 268435456"));
  CHECK_THAT(error_for({2147483647, 2147483647, 3, 80}), Containing("start 2147483647"));
  CHECK(error_of<std::invalid_argument>([] {
          to_groove({40, 9999});
        }) == "token 9999 is not in 0 .. 793");
  Tokens long_ago(size_t{1} << 24, shift(2, 0));
  CHECK(to_groove(long_ago).tracks[0].notes.empty());
  long_ago.push_back(on(0, 40));
  CHECK(error_of<std::invalid_argument>([&] { to_groove(long_ago); }) ==
        "the tokens exceed tick 2^28; a groove must end before it");
}
