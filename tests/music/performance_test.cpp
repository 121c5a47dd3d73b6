// Performance events: conversion from MIDI files and back.

#include "music/performance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "examples/common/portable_random.h"
#include "music/midi_reader.h"
#include "music/tokenizer.h"
#include "tests/music/songs.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using namespace stretto::testing;         // NOLINT
using stretto::Error;
using stretto::examples::PortableRandom;

int on(int pitch) { return performance_on + pitch; }
int off(int pitch) { return performance_off + pitch; }
int shift(int hundredths) { return performance_shift + hundredths - 1; }
int loud(int bin) { return performance_velocity + bin; }

std::vector<PianoNote> random_notes(PortableRandom& random, int n) {
  std::vector<PianoNote> notes;
  for (int i = 0; i < n; ++i)
    notes.push_back(
        {random.below(1000), 1 + random.below(400), random.below(128), 4 * random.below(32) + 2});
  notes.push_back({0, 5, 60, 62});
  play_on_one_piano(notes);
  return notes;
}

}  // namespace

TEST_CASE("performance events are ordered by time", "[music]") {
  CHECK(performance_end == 388);
  CHECK(performance_pad + 1 == performance_size);
  // The example of Huang et al. (2018), figure 7, at 2 ticks per 10 ms: three overlapping notes and
  // a fourth; initial silence is omitted.
  Song song =
      piano_song({{100, 400, 60, 80}, {200, 300, 64, 80}, {300, 200, 67, 80}, {800, 100, 65, 100}});
  song.ticks_per_quarter = 100;
  CHECK(performance_tokens(performed(parsed(song))) ==
        std::vector<int64_t>{loud(19), on(60), shift(50), on(64), shift(50), on(67), shift(100),
                             off(60), off(64), off(67), shift(100), shift(50), loud(24), on(65),
                             shift(50), off(65), performance_end});
}

TEST_CASE("performance times follow the tempo map", "[music]") {
  Song song = piano_song({{480, 480, 60, 1}, {1440, 480, 60, 127}});
  song.quarters_per_minute = 60;
  song.tempos = {{960, 240}};
  CHECK(performed(parsed(song)) == std::vector<PianoNote>{{0, 100, 60, 2}, {125, 25, 60, 126}});
}

TEST_CASE("the pedal extends notes if requested", "[music]") {
  MidiFile file = parsed(
      piano_song({{0, 480, 60, 62}, {480, 480, 64, 62}, {1440, 96, 60, 62}, {1920, 480, 67, 62}}));
  file.controls = {
      {240, 0, 64, 127, 1}, {1200, 0, 64, 63, 1}, {1440, 0, 64, 64, 1}, {0, 1, 64, 127, 1}};
  CHECK(performed(file) ==
        std::vector<PianoNote>{
            {0, 50, 60, 62}, {50, 50, 64, 62}, {150, 10, 60, 62}, {200, 50, 67, 62}});
  CHECK(performed(file, true) ==
        std::vector<PianoNote>{
            {0, 125, 60, 62}, {50, 75, 64, 62}, {150, 100, 60, 62}, {200, 50, 67, 62}});
}

TEST_CASE("sostenuto, hold, silence and reset act on held notes", "[music]") {
  MidiFile file = parsed(piano_song({{0, 480, 60, 62}, {480, 480, 64, 62}}));
  // The ends of the two notes, in 10 ms, with these (tick, controller, value).
  const auto ends = [&](const std::vector<std::array<int, 3>>& controls) {
    file.controls.clear();
    for (const auto& [tick, controller, value] : controls)
      file.controls.push_back({tick, 0, controller, value, 1});
    std::vector<std::int64_t> all;
    for (const PianoNote& note : performed(file, true)) all.push_back(note.start + note.duration);
    return all;
  };
  using Ends = std::vector<std::int64_t>;
  CHECK(ends({{240, 69, 127}, {1200, 69, 0}}) == Ends{125, 125});
  CHECK(ends({{240, 66, 127}, {1200, 66, 0}}) == Ends{125, 100});  // only keys that were down
  CHECK(ends({{480, 66, 127}, {1200, 66, 0}}) == Ends{50, 125});
  CHECK(ends({{240, 66, 127}, {360, 66, 0}}) == Ends{50, 100});
  CHECK(ends({{240, 64, 127}, {600, 64, 0}, {540, 69, 127}, {1200, 69, 0}}) == Ends{125, 125});
  CHECK(ends({{240, 66, 127}, {600, 66, 0}, {540, 64, 127}, {1200, 64, 0}}) == Ends{125, 125});
  for (const int pedal : {64, 66, 69}) {
    CHECK(ends({{240, pedal, 127}, {720, 121, 0}}) == Ends{75, 100});
    CHECK(ends({{240, pedal, 127}, {720, 120, 0}, {1200, pedal, 0}}).at(0) == 75);
  }
}

TEST_CASE("a pedal that is never released ends a minute after the last note", "[music]") {
  MidiFile file = parsed(piano_song({{0, 480, 60, 62}, {480, 480, 64, 62}}));
  file.controls = {{240, 0, 64, 127, 1}};
  file.tracks[0].end = std::int64_t{1} << 40;
  const std::vector<PianoNote> held{{0, 6100, 60, 62}, {50, 6050, 64, 62}};
  CHECK(performed(file, true) == held);
  file.controls.push_back({std::int64_t{1} << 40, 0, 64, 0, 1});
  CHECK(performed(file, true) == held);
  file.controls.back().tick = 960 + 96;
  CHECK(performed(file, true) == std::vector<PianoNote>{{0, 110, 60, 62}, {50, 60, 64, 62}});
}

TEST_CASE("performance events are exact for notes on the grid", "[music]") {
  PortableRandom random(2);
  for (int trial = 0; trial < 50; ++trial) {
    const std::vector<PianoNote> notes = random_notes(random, 60);
    const std::vector<int64_t> tokens = performance_tokens(notes);
    CHECK(performance_notes(tokens) == notes);
    CHECK(performed(parsed(to_song(notes))) == notes);
    CHECK(stretched(tokens, 1) == tokens);
  }
}

TEST_CASE("performance events can be decoded in any order", "[music]") {
  CHECK(performance_notes({}).empty());
  CHECK(performance_notes({off(60), loud(3), shift(4)}).empty());
  CHECK(performance_notes({on(60), off(60)}) == std::vector<PianoNote>{{0, 1, 60, 62}});
  CHECK(performance_notes({on(60), shift(7), on(60), shift(2)}) ==
        std::vector<PianoNote>{{0, 7, 60, 62}, {7, 2, 60, 62}});
  CHECK(performance_notes({-1, performance_pad, 1 << 30, on(1), performance_end, on(2)}) ==
        std::vector<PianoNote>{{0, 1, 1, 62}});
  PortableRandom random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> tokens;
    for (int i = 0; i < 300; ++i) tokens.push_back(random.below(400) - 4);
    std::erase(tokens, performance_end);
    const std::vector<PianoNote> notes = performance_notes(tokens);
    CHECK(performance_notes(performance_tokens(notes)).size() == notes.size());
    CHECK_NOTHROW(parsed(to_song(notes)));
  }
}

TEST_CASE("stretched events stay on the grid without drifting", "[music]") {
  std::vector<int64_t> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(tokens.end(), {on(60), shift(1), off(60), shift(9)});
  for (const double factor : {0.95, 1.05}) {
    const std::vector<PianoNote> notes = performance_notes(stretched(tokens, factor));
    REQUIRE(notes.size() == 1000);
    for (size_t i = 0; i < notes.size(); ++i)
      CHECK(std::abs(double(notes[i].start) - factor * 10 * double(i)) <= 0.5);
  }
  CHECK(stretched({shift(100), shift(100)}, 0.95) == std::vector<int64_t>{shift(100), shift(90)});
}

TEST_CASE("real files are the same after encoding and decoding in both languages",
          "[music][data]") {
  const std::string packed = data_path("midi/pop909.tar.gz"), zoo = data_path("midi/zoo");
  for (const std::string& path : {packed, zoo}) STRETTO_NEEDS_DATA(path);
  const TempDir folder;
  const std::string command = "tar xzf '" + packed + "' -C '" + folder.str() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  std::vector<std::string> paths;
  for (const std::string& from : {zoo, folder.str()})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(from)) {
      const std::string path = entry.path().string();
      // A tenth of the songs, and the whole zoo.
      if (entry.is_regular_file() && (from == zoo || path.ends_with("0.mid")))
        paths.push_back(path);
    }
  int refused = 0, songs = 0;
  for (const std::string& path : paths) {
    INFO(path);
    MidiFile file;
    try {
      file = read_midi(path);
      tokenizer("remi")->check_file(file, path);
    } catch (const Error&) {
      ++refused;
      continue;
    }
    songs += path.rfind(zoo, 0) != 0;
    for (const char* language : {"remi", "performance"}) {
      const auto tokens = tokenizer(language);
      const std::vector<int64_t> tokens_of_file = tokens->encode(file);
      CHECK(tokens->encode(parsed(tokens->decode(tokens_of_file))) == tokens_of_file);
    }
    // Every onset is present, rounded to 10 ms.
    std::set<std::pair<int, int64_t>> onsets;
    const std::vector<PianoNote> notes = performed(file);
    for (const PianoNote& note : notes) onsets.insert({note.pitch, note.start});
    double first = HUGE_VAL;
    for (const MidiNote& note : file.notes)
      if (note.channel != drum_channel) first = std::min(first, note.start_seconds);
    for (const MidiNote& note : file.notes)
      if (note.channel != drum_channel)
        CHECK(onsets.contains(
            {note.pitch, std::llround(100 * note.start_seconds) - std::llround(100 * first)}));
  }
  CHECK(songs == 90);
  CHECK(refused < int(paths.size()) / 3);
}
