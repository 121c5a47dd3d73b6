// TSD and REMI tokens of MidiTok: ids, conversion from MIDI files and back, and the grammar.
#include "music/event_tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/music/event_songs.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using namespace stretto::testing;         // NOLINT
using stretto::examples::PortableRandom;

const std::vector<std::string> event_names{"remi-multitrack", "tsd", "tsd-multitrack"};

}  // namespace

TEST_CASE("Event tokens have the ids of MidiTok", "[music]") {
  const EventTokenizer tsd("tsd-multitrack"), remi("remi-multitrack", {.time = EventTime::bars});
  CHECK(tsd.size() == 476);
  CHECK(remi.size() == 445);
  for (const auto& [name, in_tsd, in_remi] :
       {std::tuple{"PAD_None", 0, 0},  {"BOS_None", 1, 1},           {"EOS_None", 2, 2},
        {"MASK_None", 3, 3},           {"Bar_None", -1, 4},          {"Pitch_21", 4, 5},
        {"Pitch_109", 92, 93},         {"Velocity_3", 93, 94},       {"Velocity_127", 124, 125},
        {"Duration_0.1.8", 125, 126},  {"Duration_3.7.8", 155, 156}, {"Duration_4.0.4", 156, 157},
        {"Duration_12.0.4", 188, 189}, {"TimeShift_0.1.8", 189, -1}, {"TimeShift_12.0.4", 252, -1},
        {"Position_0", -1, 190},       {"Position_31", -1, 221},     {"PitchDrum_27", 253, 222},
        {"PitchDrum_88", 314, 283},    {"Tempo_40.0", 315, 284},     {"Tempo_121.29", 327, 296},
        {"Tempo_250.0", 346, 315},     {"Program_0", 347, 316},      {"Program_-1", 475, 444}}) {
    INFO(name);
    CHECK(tsd.id(name) == in_tsd);
    CHECK(remi.id(name) == in_remi);
  }
  for (int64_t id = 0; id < tsd.size(); ++id) CHECK(tsd.id(tsd.token_name(id)) == id);
  CHECK(tsd.token_name(-1).empty());
  CHECK(tsd.token_name(476).empty());
  CHECK(EventTokenizer("", {.programs = false, .tempos = false}).size() == 315);
}

// The expected texts are MidiTok 3.1's, with use_programs, use_tempos, use_time_signatures = False.
TEST_CASE("Event tokens of a song are those of MidiTok", "[music]") {
  const Song song{
      480,
      90,
      {{"Bass", 1, 33, {{0, 480, 36, 100}, {470, 700, 38, 3}, {30000, 8000, 41, 127}}},
       {"Keys",
        0,
        0,
        {{0, 60, 60, 61},
         {0, 30, 64, 64},
         {29, 1900, 20, 80},
         {31, 1930, 67, 65},
         {960, 1, 110, 80},
         {960, 1, 109, 80}}},
       {"Beat", 9, 0, {{0, 10, 36, 90}, {0, 10, 42, 70}, {240, 10, 26, 70}, {480, 10, 88, 70}}},
       {"Second bass", 2, 33, {{0, 480, 48, 100}, {0, 240, 36, 100}}}},
      {{500, 121}, {505, 300}, {4000, 33}}};
  const std::string start =
      "Tempo_87.42 Program_33 Pitch_36 Velocity_99 Duration_0.4.8 Program_33 Pitch_36 "
      "Velocity_99 Duration_1.0.8 Program_33 Pitch_48 Velocity_99 Duration_1.0.8 Program_0 "
      "Pitch_60 Velocity_63 Duration_0.1.8 Program_0 Pitch_64 Velocity_63 Duration_0.1.8 "
      "Program_-1 PitchDrum_36 Velocity_91 Duration_0.1.8 Program_-1 PitchDrum_42 Velocity_71 "
      "Duration_0.1.8 ";
  const std::string second = "Program_0 Pitch_67 Velocity_67 Duration_4.0.4 ";
  const std::string third =
      "Tempo_250.0 Program_33 Pitch_38 Velocity_3 Duration_1.4.8 Program_-1 PitchDrum_88 "
      "Velocity_71 Duration_0.1.8 ";
  const std::string fourth = "Program_0 Pitch_109 Velocity_79 Duration_0.1.8 ";
  const std::string last = "Program_33 Pitch_41 Velocity_127 Duration_12.0.4";
  const auto tsd = tokenizer("tsd-multitrack"), remi = tokenizer("remi-multitrack");
  CHECK(text(*tsd, tsd->encode(parsed(song))) ==
        start + "TimeShift_0.1.8 " + second + "TimeShift_0.7.8 " + third + "TimeShift_1.0.8 " +
            fourth +
            "TimeShift_6.1.4 TimeShift_0.1.8 Tempo_40.0 TimeShift_12.0.4 TimeShift_12.0.4 "
            "TimeShift_12.0.4 TimeShift_12.0.4 TimeShift_6.0.4 TimeShift_0.1.8 " +
            last);
  std::string bars;
  for (int i = 0; i < 13; ++i) bars += "Bar_None ";
  CHECK(text(*remi, remi->encode(parsed(song))) ==
        "Bar_None Position_0 " + start + "Position_1 " + second + "Position_8 " + third +
            "Position_16 " + fourth + "Bar_None Bar_None Position_3 Tempo_40.0 " + bars +
            "Position_20 " + last);
  // Without programs the notes of all instruments are one piano, and drums are left out.
  const auto piano = tokenizer("tsd");
  CHECK_THAT(text(*piano, piano->encode(parsed(song))),
             Containing("Tempo_87.42 Pitch_36 Velocity_99 Duration_1.0.8 Pitch_60 "));
  CHECK_FALSE(piano->drums);
}

TEST_CASE("Event tokens are the same after decoding and encoding", "[music]") {
  for (const std::string& name : event_names) {
    const auto tokens = tokenizer(name);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      Song song = random_song(seed);
      if (!tokens->drums) song.tracks.resize(1);  // one instrument
      const std::vector<int64_t> ids = tokens->encode(parsed(song));
      const Song decoded = tokens->decode(ids);
      for (const Track& track : decoded.tracks) CHECK(track.channel < 16);
      std::vector<int64_t> again = tokens->encode(parsed(decoded));
      // Programs may be in another order, and so may simultaneous notes.
      std::vector<int64_t> sorted = ids;
      std::sort(sorted.begin(), sorted.end());
      std::sort(again.begin(), again.end());
      CHECK(again == sorted);
    }
  }
}

TEST_CASE("Any sequence of event tokens can be decoded", "[music]") {
  for (const EventTokenizer& tokens : all_event_tokenizers()) {
    INFO(tokens.name);
    PortableRandom random(5);
    for (int round = 0; round < 50; ++round) {
      std::vector<int64_t> ids;
      for (int i = 0; i < 300; ++i) ids.push_back(random.below(int(tokens.size()) + 20) - 10);
      const Song song = tokens.decode(ids);
      CHECK(!song.tracks.empty());
      CHECK_NOTHROW(midi_bytes(song));
    }
    // A time past the limit ends the music.
    const EventTokenizer tsd("tsd", {.programs = false});
    std::vector<int64_t> late(100'000, tsd.id("TimeShift_12.0.4"));
    for (const char* word : {"Pitch_60", "Velocity_63", "Duration_1.0.8"})
      late.push_back(tsd.id(word));
    CHECK(tsd.decode(late).tracks[0].notes.empty());
  }
}

TEST_CASE("Tokens that an event grammar allows are well-formed notes", "[music]") {
  uint64_t seed = 3;
  for (const EventTokenizer& tokens : all_event_tokenizers()) {
    INFO(tokens.name);
    PortableRandom random(seed++);
    for (int round = 0; round < 2; ++round) {
      const auto grammar = tokens.grammar();
      std::vector<int64_t> ids{tokens.first};
      grammar->see(tokens.first);
      size_t notes = 0;
      for (int i = 0; i < 400; ++i) {
        std::vector<bool> allowed(size_t(tokens.size()), true);
        allowed[size_t(tokens.pad)] = false;
        for (const int64_t id : grammar->forbidden()) allowed[size_t(id)] = false;
        CHECK_FALSE(allowed[size_t(tokens.end)]);
        std::vector<int64_t> choices;
        for (int64_t id = 0; id < tokens.size(); ++id)
          if (allowed[size_t(id)]) choices.push_back(id);
        REQUIRE(!choices.empty());
        const int64_t id = choices[size_t(random.below(int(choices.size())))];
        grammar->see(id);
        ids.push_back(id);
        notes += tokens.token_name(id).rfind("Velocity_", 0) == 0 && i < 399;
      }
      size_t decoded = 0;
      for (const Track& track : tokens.decode(ids).tracks) decoded += track.notes.size();
      CHECK(decoded == notes);
      CHECK(notes > 10);
    }
  }
}

TEST_CASE("An event grammar allows the tokens of every song", "[music]") {
  for (const EventTokenizer& tokens : all_event_tokenizers())
    for (uint64_t seed = 0; seed < 4; ++seed) {
      INFO(tokens.name << ", seed " << seed);
      const std::vector<int64_t> ids = tokens.encode(parsed(song_with_everything(seed)));
      const auto grammar = tokens.grammar();
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const std::vector<int64_t> forbidden = grammar->forbidden();
        const bool bad = std::find(forbidden.begin(), forbidden.end(), ids[i]) != forbidden.end();
        if (bad) FAIL_CHECK("token " << i << ": " << tokens.token_name(ids[i]));
        if (bad) break;
        grammar->see(ids[i]);
      }
    }
}

TEST_CASE("More than fifteen instruments share channels", "[music]") {
  const EventTokenizer tokens("tsd-multitrack");
  std::vector<int64_t> ids;
  for (int program = -1; program < 20; ++program)
    for (const std::string& word : {"Program_" + std::to_string(program),
                                    std::string(program < 0 ? "PitchDrum" : "Pitch") + "_60",
                                    std::string("Velocity_63"), std::string("Duration_1.0.8")})
      ids.push_back(tokens.id(word));
  const Song song = tokens.decode(ids);
  REQUIRE(song.tracks.size() == 21);
  for (const Track& track : song.tracks)
    CHECK((track.channel == drum_channel) == (track.name == "Drums"));
  const MidiFile file = parsed(song);
  for (const MidiNote& note : file.notes)
    if (note.channel != drum_channel) CHECK(note.program == note.track - 2);
}

// The checksums are those of the ids of MidiTok 3.1, of all files: the sum of their FNV-1a hashes.
TEST_CASE("Event tokens of 391 performances have the checksums of MidiTok", "[music][data]") {
  const std::string packed = data_path("midi/asap.tar.gz");
  STRETTO_NEEDS_DATA(packed);
  const TempDir folder;
  REQUIRE(std::system(("tar xzf '" + packed + "' -C '" + folder.str() + "'").c_str()) == 0);
  const EventTokenizer remi("", {.time = EventTime::bars, .time_signatures = true});
  const EventTokenizer tsd("", {.time_signatures = true,
                                .rests = true,
                                .sustain_pedals = true,
                                .sustain_pedal_duration = true,
                                .pitch_bends = true});
  uint64_t sums[2] = {};
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.str())) {
    if (entry.path().extension() != ".mid") continue;
    const MidiFile file = read_midi(entry.path().string());
    ++files;
    for (size_t i = 0; i < 2; ++i) {
      uint64_t hash = 0xcbf29ce484222325;
      const EventTokenizer& tokens = i == 0 ? remi : tsd;
      for (const int64_t id : tokens.encode(file))
        if (id != tokens.end) hash = (hash ^ uint64_t(id)) * 0x100000001b3;
      sums[i] += hash;
    }
  }
  CHECK(files == 391);
  CHECK(sums[0] == 0xf12be38fb07fb384);
  CHECK(sums[1] == 0x436902bc887b0d56);
}

// Compares with a file that tests/music/miditok_expected.py wrote.
TEST_CASE("Event tokens of real files are those of MidiTok", "[music][data]") {
  const char* path = std::getenv("STRETTO_MIDITOK");
  if (path == nullptr) STRETTO_SKIP("STRETTO_MIDITOK does not name a file of expected tokens");
  std::ifstream rows(path);
  int64_t files = 0;
  for (std::string line; std::getline(rows, line);) {
    std::istringstream row(line);
    std::string name, file;
    std::getline(row, name, '\t');
    std::getline(row, file, '\t');
    INFO(name << " " << file);
    std::vector<int64_t> expected;
    for (int64_t id = 0; row >> id;) expected.push_back(id);
    const auto has = [&](const char* option) { return name.find(option) != std::string::npos; };
    const TokenizerOptions options{.time_signatures = has("+time_signatures"),
                                   .rests = has("+rests"),
                                   .sustain_pedals = has("+sustain_pedals"),
                                   .sustain_pedal_duration = has("+sustain_pedal_duration"),
                                   .pitch_bends = has("+pitch_bends")};
    std::vector<int64_t> ids =
        tokenizer(name.substr(0, name.find('+')), options)->encode(read_midi(file));
    ids.pop_back();
    CHECK(ids == expected);
    ++files;
  }
  CHECK(files > 0);
}
