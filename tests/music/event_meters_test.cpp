// Time signatures in the TSD and REMI tokens of MidiTok: ids, bars, round trips, hostile meters.
#include <climits>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/music/event_songs.h"
#include "tests/music/midi_bytes.h"
#include "tests/support/error_of.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using stretto::examples::PortableRandom;
using stretto::testing::error_of;

const EventTokenizer remi("remi-multitrack", {.time = EventTime::bars, .time_signatures = true});
const EventTokenizer tsd("tsd-multitrack", {.time_signatures = true});

/// The expected meters of a decoded song as text: "0:3/4 1440:6/8".
std::string meters_of(const Song& song) {
  std::string all;
  for (const MeterMark& m : song.meters)
    all += (all.empty() ? "" : " ") + std::to_string(m.tick) + ":" + std::to_string(m.numerator) +
           "/" + std::to_string(m.denominator);
  return all;
}

/// Four bars of each meter: a note on every beat, and an eighth of a beat after it.
Song bars_of(const std::vector<MeterMark>& meters) {
  Song song = piano_song({});
  int tick = 0;
  for (MeterMark meter : meters) {
    meter.tick = tick;
    song.meters.push_back(meter);
    const int beat = 1920 / meter.denominator;
    for (int i = 0; i < 4 * meter.numerator; ++i, tick += beat) {
      song.tracks[0].notes.push_back({tick, beat, 40 + i % 12, 63});
      song.tracks[0].notes.push_back({tick + beat / 8, beat / 2, 60 + i % 12, 63});
    }
  }
  return song;
}

void check_same_notes(const Song& a, const Song& b) {
  REQUIRE(a.tracks[0].notes.size() == b.tracks[0].notes.size());
  for (size_t i = 0; i < a.tracks[0].notes.size(); ++i) {
    const Note &left = a.tracks[0].notes[i], &right = b.tracks[0].notes[i];
    CHECK(std::tuple(left.start, left.duration, left.pitch, left.velocity) ==
          std::tuple(right.start, right.duration, right.pitch, right.velocity));
  }
}

}  // namespace

TEST_CASE("Event tokens with time signatures have the ids of MidiTok", "[music]") {
  CHECK(remi.size() == 518);
  CHECK(tsd.size() == 485);
  CHECK(EventTokenizer("", {.time = EventTime::bars, .programs = false, .time_signatures = true})
            .size() == 389);
  for (const auto& [name, in_tsd, in_remi] : {std::tuple{"Position_95", -1, 285},
                                              {"PitchDrum_27", 253, 286},
                                              {"Tempo_40.0", 315, 348},
                                              {"Program_-1", 475, 508},
                                              {"TimeSig_3/8", 476, 509},
                                              {"TimeSig_12/8", 477, 510},
                                              {"TimeSig_6/8", 478, 511},
                                              {"TimeSig_5/4", 479, 512},
                                              {"TimeSig_6/4", 480, 513},
                                              {"TimeSig_3/4", 481, 514},
                                              {"TimeSig_2/4", 482, 515},
                                              {"TimeSig_1/4", 483, 516},
                                              {"TimeSig_4/4", 484, 517},
                                              {"TimeSig_9/8", -1, -1}}) {
    INFO(name);
    CHECK(tsd.id(name) == in_tsd);
    CHECK(remi.id(name) == in_remi);
  }
  CHECK(tokenizer("remi-multitrack", {.time_signatures = true})->size() == 518);
  CHECK(tokenizer("tsd", {.time_signatures = true})->size() == 356);
}

// The expected texts are MidiTok 3.1's. The meter of tick 3000 begins with the next bar, 9/8 has no
// token, and 2/4 replaces 3/4, which would begin at the same tick.
TEST_CASE("Event tokens of a song with meters are those of MidiTok", "[music]") {
  const Song song{480,
                  90,
                  {{"Keys",
                    0,
                    0,
                    {{0, 1440, 60, 64},
                     {2880, 240, 62, 64},
                     {3135, 720, 64, 64},
                     {4350, 30, 65, 64},
                     {4410, 60, 67, 64},
                     {8000, 4000, 69, 64}}},
                   {"Beat", 9, 0, {{9120, 10, 36, 90}, {11040, 10, 38, 90}, {12900, 10, 42, 90}}}},
                  {{2900, 100}, {11070, 140}},
                  {{0, 3, 4},
                   {2880, 6, 8},
                   {3000, 5, 4},
                   {6000, 9, 8},
                   {9120, 4, 4},
                   {9220, 3, 4},
                   {11040, 2, 4}}};
  CHECK(text(remi, remi.encode(parsed(song))) ==
        "Bar_None TimeSig_3/4 Position_0 Tempo_87.42 Program_0 Pitch_60 Velocity_63 Duration_3.0.8 "
        "Bar_None TimeSig_3/4 Bar_None TimeSig_6/8 Position_0 Program_0 Pitch_62 Velocity_63 "
        "Duration_1.0.8 Position_1 Tempo_100.97 Position_9 Program_0 Pitch_64 Velocity_63 "
        "Duration_3.0.8 Bar_None TimeSig_5/4 Position_0 Program_0 Pitch_65 Velocity_63 "
        "Duration_0.1.8 Position_2 Program_0 Pitch_67 Velocity_63 Duration_0.1.8 Bar_None "
        "TimeSig_5/4 Position_22 Program_0 Pitch_69 Velocity_63 Duration_8.1.4 Bar_None "
        "TimeSig_4/4 Position_0 Program_-1 PitchDrum_36 Velocity_91 Duration_0.1.8 Bar_None "
        "TimeSig_2/4 Position_0 Tempo_141.61 Program_-1 PitchDrum_38 Velocity_91 Duration_0.1.8 "
        "Bar_None TimeSig_2/4 Position_15 Program_-1 PitchDrum_42 Velocity_91 Duration_0.1.8");
  CHECK(text(tsd, tsd.encode(parsed(song))) ==
        "TimeSig_3/4 Tempo_87.42 Program_0 Pitch_60 Velocity_63 Duration_3.0.8 TimeShift_6.0.4 "
        "TimeSig_6/8 Program_0 Pitch_62 Velocity_63 Duration_1.0.8 TimeShift_0.1.8 Tempo_100.97 "
        "TimeShift_1.0.8 Program_0 Pitch_64 Velocity_63 Duration_3.0.8 TimeShift_4.3.4 "
        "TimeShift_0.1.8 TimeSig_5/4 Program_0 Pitch_65 Velocity_63 Duration_0.1.8 "
        "TimeShift_0.2.8 Program_0 Pitch_67 Velocity_63 Duration_0.1.8 TimeShift_7.2.4 Program_0 "
        "Pitch_69 Velocity_63 Duration_8.1.4 TimeShift_2.2.8 TimeSig_4/4 Program_-1 PitchDrum_36 "
        "Velocity_91 Duration_0.1.8 TimeShift_4.0.4 TimeSig_2/4 Tempo_141.61 Program_-1 "
        "PitchDrum_38 Velocity_91 Duration_0.1.8 TimeShift_3.7.8 Program_-1 PitchDrum_42 "
        "Velocity_91 Duration_0.1.8");
  CHECK(
      remi.warnings(parsed(song)) ==
      std::vector<std::string>{"the time signature 9/8 at tick 6000 has no token and is ignored"});
  for (const EventTokenizer* tokens : {&remi, &tsd})
    CHECK(meters_of(tokens->decode(tokens->encode(parsed(song)))) ==
          "0:3/4 2880:6/8 4320:5/4 9120:4/4 11040:2/4");
}

TEST_CASE("Pieces in any meter keep their notes, bars and meters", "[music]") {
  std::vector<std::vector<MeterMark>> pieces;
  std::vector<MeterMark> all{{0, 3, 8}, {0, 12, 8}, {0, 6, 8}, {0, 5, 4}, {0, 6, 4},
                             {0, 3, 4}, {0, 2, 4},  {0, 1, 4}, {0, 4, 4}};
  for (const MeterMark& meter : all) pieces.push_back({meter});
  pieces.push_back(all);
  std::reverse(all.begin(), all.end());
  pieces.push_back(all);
  for (const auto& meters : pieces) {
    const Song song = bars_of(meters);
    INFO(meters_of(song));
    for (const EventTokenizer* tokens : {&remi, &tsd}) {
      const std::vector<int64_t> ids = tokens->encode(parsed(song));
      const Song decoded = tokens->decode(ids);
      CHECK(meters_of(decoded) == meters_of(song));
      check_same_notes(decoded, song);
      CHECK(tokens->encode(parsed(decoded)) == ids);
      CHECK(tokens->warnings(parsed(song)).empty());
    }
    const std::vector<int64_t> ids = remi.encode(parsed(song));
    CHECK(std::count(ids.begin(), ids.end(), remi.bar) == 4 * int64_t(meters.size()));
  }
}

TEST_CASE("Random meters are the same after decoding and encoding", "[music]") {
  for (const EventTokenizer& tokens : all_event_tokenizers())
    for (uint64_t seed = 0; seed < 6; ++seed) {
      INFO(tokens.name << ", seed " << seed);
      Song song = song_with_everything(seed);
      // A rest under a meter that counts quarters, after a note that ends between its positions,
      // is rounded down.
      if (tokens.id("Rest_0.1.8") >= 0 && tokens.bar < 0) song.meters.clear();
      if (!tokens.drums) song.tracks.resize(1);  // one instrument
      const std::vector<int64_t> ids = tokens.encode(parsed(song));
      const Song decoded = tokens.decode(ids);
      std::vector<int64_t> again = tokens.encode(parsed(decoded));
      CHECK(meters_of(tokens.decode(again)) == meters_of(decoded));
      // Programs may be in another order, and so may simultaneous notes.
      std::vector<int64_t> sorted = ids;
      std::sort(sorted.begin(), sorted.end());
      std::sort(again.begin(), again.end());
      CHECK(again == sorted);
    }
}

TEST_CASE("Transposed tokens keep their meters", "[music]") {
  const std::vector<int64_t> ids = remi.encode(parsed(bars_of({{0, 6, 8}, {0, 5, 4}})));
  std::vector<int64_t> moved;
  for (const int64_t id : ids) moved.push_back(remi.transposed(id, 5));
  Song expected = bars_of({{0, 6, 8}, {0, 5, 4}});
  for (Note& note : expected.tracks[0].notes) note.pitch += 5;
  check_same_notes(remi.decode(moved), expected);
  CHECK(meters_of(remi.decode(moved)) == "0:6/8 5760:5/4");
}

TEST_CASE("Meters that make no sense are ignored with a warning", "[music]") {
  MidiFile file = parsed(bars_of({{0, 3, 4}}));
  const std::vector<int64_t> three = remi.encode(file);
  file.time_signatures = {{0, 3, 4, 0}, {0, 0, 4, 0}, {10, 4, 0, 0}, {20, -3, -4, 0}};
  file.time_signatures.push_back({INT64_MAX / 32, 6, 8, 0});
  file.time_signatures.push_back({100, 255, 128, 0});
  file.time_signatures.push_back({100, INT_MAX, INT_MIN, 0});
  CHECK(remi.encode(file).size() == three.size());
  CHECK(remi.warnings(file).size() == 5);
  CHECK_THAT(remi.warnings(file).front(), Containing("0/4 at tick 0 has no token"));
  file.time_signatures = {{-5, 6, 8, 0}, {-1, 3, 4, 0}, {0, 4, 4, 0}, {0, 3, 4, 0}};
  CHECK(remi.encode(file) == three);  // the last one of tick 0
  file.time_signatures.assign(1000, {0, 9, 8, 0});
  CHECK(remi.warnings(file).size() == max_midi_warnings);
  CHECK(tokenizer("remi-multitrack")->warnings(file).empty());
  CHECK(tokenizer("remi")->warnings(file).empty());

  // A meter at each tick.
  file.time_signatures.clear();
  for (int i = 0; i < 100'000; ++i) file.time_signatures.push_back({i, 1 + i % 6, 4, 0});
  for (const EventTokenizer* tokens : {&remi, &tsd})
    CHECK(tokens->decode(tokens->encode(file)).meters.size() < 100);

  MidiFile early = parsed(piano_song({{0, 480, 60, 64}}));
  early.notes[0].start = -1;
  CHECK(error_of<stretto::Error>([&] { remi.check_file(early, "x"); }) ==
        "[tokenizer] x: has a note before tick 0");
  early.notes.clear();
  CHECK(error_of<stretto::Error>([&] { remi.check_file(early, "x"); }) ==
        "[tokenizer] x: has no notes");
  CHECK(text(remi, remi.encode(early)) == "Bar_None TimeSig_4/4 Position_0 Tempo_121.29");
}

TEST_CASE("Meters of a file without ticks per beat are found", "[music]") {
  // 25 frames of 40 ticks: a tick is a millisecond, a beat half a second.
  const std::string meter = bytes_of("\0\xFF\x58\4\3\2\x18\x08");
  const std::string note = bytes_of("\x8B\x5C\x90\x3C\x40\x64\x3C\0");  // after 1500 ticks
  const MidiFile file = parse_midi(header(1, 1, 0xE728) + track(meter + note), "x");
  REQUIRE(file.division.ticks_per_quarter == 0);
  CHECK_THAT(
      text(remi, remi.encode(file)),
      Containing("TimeSig_3/4 Position_0 Tempo_121.29 Bar_None TimeSig_3/4 Position_0 Program_0"));
}

TEST_CASE("Sampled tokens have a meter in each bar, and change it only there", "[music]") {
  PortableRandom random(11);
  for (const EventTokenizer* tokens : {&remi, &tsd}) {
    const auto shared = std::make_shared<const EventTokenizer>(
        "x", EventTokenizerOptions{.time = tokens == &remi ? EventTime::bars : EventTime::shifts,
                                   .time_signatures = true});
    const auto constrained = constrain(shared);
    std::vector<int64_t> ids{shared->first};
    int changes = 0;
    std::string last;
    for (int i = 0; i < 1500; ++i) {
      std::vector<double> logits(size_t(shared->size()), 0);
      constrained(logits, ids);
      std::vector<int64_t> choices, meters;
      for (size_t id = 0; id < logits.size(); ++id)
        if (logits[id] == 0)
          (shared->token_name(int64_t(id)).rfind("TimeSig", 0) == 0 ? meters : choices)
              .push_back(int64_t(id));
      if (last == "Bar_None") CHECK(choices.empty());
      if (!meters.empty()) choices = meters;
      const bool bar = tokens->bar >= 0 && logits[size_t(tokens->bar)] == 0;
      if (bar && random.percent(20)) choices = {tokens->bar};
      ids.push_back(choices[size_t(random.below(int(choices.size())))]);
      last = shared->token_name(ids.back());
      changes += last.rfind("TimeSig", 0) == 0;
    }
    CHECK(changes > 3);
    // All meters are decoded, and are at the beginning of bars when they are read again.
    const Song song = shared->decode(ids);
    const std::vector<int64_t> again = shared->encode(parsed(song));
    CHECK(meters_of(shared->decode(again)) == meters_of(song));
  }
}

TEST_CASE("Meters of a song are written, or refused", "[music]") {
  Song song = piano_song({{0, 480, 60, 64}});
  CHECK(parsed(song).time_signatures == std::vector<TimeSignature>{{0, 4, 4, 0}});
  song.meters = {{960, 255, 32768}, {970, 1, 1}};
  CHECK(parsed(song).time_signatures ==
        std::vector<TimeSignature>{{0, 4, 4, 0}, {960, 255, 32768, 0}, {970, 1, 1, 0}});
  for (const auto& [mark, message] :
       {std::pair{MeterMark{970, 3, 4}, "a meter is at tick 970; expected a tick after"},
        {MeterMark{1 << 28, 3, 4}, "a meter is at tick 268435456"},
        {MeterMark{980, 0, 4}, "a meter is 0/4; expected 1 to 255 beats of a power of two"},
        {MeterMark{980, 256, 4}, "a meter is 256/4"},
        {MeterMark{980, 3, 0}, "a meter is 3/0"},
        {MeterMark{980, 3, 6}, "a meter is 3/6"},
        {MeterMark{980, 3, 65536}, "a meter is 3/65536"}}) {
    Song bad = song;
    bad.meters.push_back(mark);
    CHECK_THAT(error_of<stretto::Error>([&] { midi_bytes(bad); }), Containing(message));
  }
  song.meters = {{-1, 3, 4}};
  CHECK_THAT(error_of<stretto::Error>([&] { midi_bytes(song); }), Containing("at tick -1"));
}
