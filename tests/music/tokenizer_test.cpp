// Tokenizers of music behind their interface: names, limits, hostile files and tokens.
#include "music/tokenizer.h"

#include <algorithm>
#include <climits>
#include <cmath>

#include "core/error.h"
#include "music/event_tokenizer.h"
#include "music/performance.h"
#include "music/piano_notes.h"
#include "tests/music/midi_bytes.h"
#include "tests/music/songs.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using stretto::Error;
using stretto::testing::error_of;

}  // namespace

TEST_CASE("Tokenizers are found by name, and names of tokens by id", "[music]") {
  for (const std::string& name : tokenizer_names()) {
    const auto tokens = tokenizer(name);
    CHECK(tokens->name == name);
    for (int64_t id = 0; id < tokens->size(); ++id) CHECK(tokens->id(tokens->token_name(id)) == id);
    for (const int64_t id : {int64_t(-1), INT64_MIN, INT64_MAX, tokens->size()})
      CHECK(tokens->token_name(id).empty());
    CHECK(tokens->id("") == -1);
    CHECK(tokens->id("Note") == -1);
    for (const int64_t id : {int64_t(-1), INT64_MIN, INT64_MAX, tokens->size()}) {
      CHECK(tokens->pitch(id) == -1);
      const std::string error = "token " + std::to_string(id) + "; " + name + " has " +
                                std::to_string(tokens->size()) +
                                " (merged tokens must be decoded first)";
      CHECK(error_of<Error>([&] { tokens->transposed(id, 1); }) == "[transposed] " + error);
      CHECK(error_of<Error>([&] { tokens->transpositions({id}, 1); }) ==
            "[transpositions] " + error);
      tokens->grammar()->see(id);
    }
  }
  CHECK(error_of<Error>([] { tokenizer("words"); }) ==
        "[tokenizer] unknown tokenizer words; expected performance, remi, remi-multitrack, tsd, "
        "tsd-multitrack");
  CHECK(error_of<Error>([] { tokenizer("remi", {.pedal = true}); }) ==
        "[tokenizer] remi has no option pedal");
  CHECK(error_of<Error>([] { tokenizer("tsd", {.chords = true}); }) ==
        "[tokenizer] tsd has no option chords");
}

TEST_CASE("constrain() excludes what the grammar forbids, and padding", "[music]") {
  for (const std::string& name : tokenizer_names()) {
    INFO(name);
    const auto tokens = tokenizer(name);
    const std::vector<int64_t> piece = tokens->encode(parsed(piano_song({{0, 480, 60, 64}})));
    const auto constrained = constrain(tokens);
    for (size_t n = 0; n < piece.size(); ++n) {  // also from a longer sequence to a shorter one
      const std::vector<int64_t> sequence(piece.begin(), piece.end() - int64_t(n));
      const auto grammar = tokens->grammar();
      for (const int64_t id : sequence) grammar->see(id);
      std::vector<double> expected(size_t(tokens->size()) + 2, 0.5), logits = expected;
      std::fill(expected.end() - 2, expected.end(), -HUGE_VAL);
      expected[size_t(tokens->pad)] = -HUGE_VAL;
      for (const int64_t id : grammar->forbidden()) expected[size_t(id)] = -HUGE_VAL;
      constrained(logits, sequence);
      CHECK(logits == expected);
    }
    std::vector<double> few(3);
    CHECK(error_of<Error>([&] { constrained(few, {}); }) ==
          "[constrain] 3 logits; " + name + " has " + std::to_string(tokens->size()) + " tokens");
  }
}

TEST_CASE("Transpositions stay in range", "[music]") {
  for (const std::string& name : tokenizer_names()) {
    const auto tokens = tokenizer(name);
    const Song song = piano_song({{0, 480, 60, 64}, {480, 480, 100, 64}});
    const std::vector<int64_t> ids = tokens->encode(parsed(song));
    const auto [down, up] = tokens->transpositions(ids, 12);
    CHECK(down == -12);
    CHECK(up == std::min(12, tokens->highest - 100));
    CHECK(tokens->transpositions({tokens->end}, 6) == std::pair(0, 0));
    for (const int64_t id : ids) {
      if (tokens->pitch(id) < 0) continue;
      CHECK(tokens->pitch(tokens->transposed(id, up)) == tokens->pitch(id) + up);
      for (const int far : {INT_MIN, -128, 128, INT_MAX})
        CHECK_THAT(error_of<Error>([&] { tokens->transposed(id, far); }),
                   Containing("[transposed] "));
    }
    CHECK_THROWS_AS(tokens->transpositions(ids, -1), Error);
    CHECK(tokens->crop_start(ids, 0) == 0);
    for (const int64_t at : {int64_t(-1), int64_t(ids.size())})
      CHECK_THROWS_AS(tokens->crop_start(ids, at), Error);
  }
}

TEST_CASE("Events long after the last note cost no tokens", "[music]") {
  // Tempos 2^28 - 1 beats apart after one note.
  const std::string late = bytes_of("\xFF\xFF\xFF\x7F\xFF\x51\x03\x07\xA1\x20");
  const std::string note = bytes_of("\0\x90\x3C\x40\1\x3C\0");
  const MidiFile plain = parse_midi(header(1, 1, 1) + track(note), "x");
  const MidiFile file = parse_midi(header(1, 1, 1) + track(note + late + late), "x");
  for (const std::string& name : tokenizer_names()) {
    const auto tokens = tokenizer(name);
    tokens->check_file(file, "x");
    CHECK(tokens->encode(file) == tokens->encode(plain));
  }
}

TEST_CASE("A file with a note per track and channel is read in time", "[music]") {
  std::string tracks;
  constexpr int n = 20'000;
  for (int i = 0; i < n; ++i) tracks += track(bytes_of("\0\x90\x3C\x40\1\x3C\0"));
  const MidiFile file = parse_midi(header(1, n, 96) + tracks, "x");
  const auto tokens = tokenizer("tsd-multitrack");
  CHECK(tokens->encode(file).size() == 4 * n + 2);  // with a tempo and the end
}

TEST_CASE("Notes with ticks out of range are refused", "[music]") {
  MidiFile file = parsed(piano_song({{0, 480, 60, 64}}));
  for (const int64_t start : {int64_t{1} << 40, int64_t{1} << 60}) {
    file.notes[0].start = start;  // the seconds stay 0
    for (const std::string& name : tokenizer_names())
      CHECK(error_of<Error>([&] { tokenizer(name)->check_file(file, "x"); }) ==
            "[tokenizer] x: lasts more than six hours or 40000 beats");
  }
}

TEST_CASE("Sequences of any length are decoded to music that can be written", "[music]") {
  for (const std::string& name : tokenizer_names()) {
    const auto tokens = tokenizer(name);
    const Song song = piano_song({{0, 480, 60, 64}});
    std::vector<int64_t> ids(3'000'000,
                             tokens->bar >= 0 ? tokens->bar : tokens->id("TimeShift_100"));
    if (ids[0] < 0) ids.assign(ids.size(), tokens->id("TimeShift_12.0.4"));
    const std::vector<int64_t> note = tokens->encode(parsed(song));
    ids.insert(ids.end(), note.begin(), note.end());
    CHECK_NOTHROW(midi_bytes(tokens->decode(ids)));
  }
}

TEST_CASE("Many pedal changes without a release are read in time", "[music]") {
  std::string events;
  constexpr int n = 40'000;
  for (int i = 0; i < n; ++i) events += bytes_of("\1\xB0\x40\x7F\1\x90\x3C\x40\1\x80\x3C\0");
  for (int i = 0; i < n; ++i) events += bytes_of("\1\xB0\x40\x7F");
  const MidiFile file = parse_midi(header(1, 1, 96) + track(events), "x");
  const std::vector<PianoNote> notes = performed(file, true);
  CHECK(notes.size() > 1000);
}

TEST_CASE("Performance events are stretched by factors in range only", "[music]") {
  const std::vector<int64_t> events{performance_shift, performance_on + 60};
  for (const double factor : {0.0, -1.0, 1e10, double(NAN), double(INFINITY)})
    CHECK_THAT(error_of<Error>([&] { stretched(events, factor); }),
               Containing("[stretched] factor"));
}
