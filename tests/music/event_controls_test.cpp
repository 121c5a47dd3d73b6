// Rests, sustain pedals and pitch bends in the TSD and REMI tokens of MidiTok.
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/music/event_songs.h"
#include "tests/support/error_of.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using stretto::testing::error_of;

EventTokenizerOptions bars(EventTokenizerOptions options) {
  options.time = EventTime::bars;
  return options;
}

/// A piano with pedals and bends, and a bass; each pedal is on channel 0.
Song song_of_controls() {
  Track keys{"Keys",
             0,
             0,
             {{960, 480, 60, 64}, {1950, 30, 62, 64}, {2400, 60, 64, 64}, {9600, 480, 65, 64}}};
  for (const auto& [tick, value] : std::vector<std::pair<int, int>>{
           {960, 127}, {1500, 0}, {1505, 64}, {2430, 63}, {5000, 127}, {5010, 0}, {12000, 127}})
    keys.controls.push_back({tick, sustain_pedal, value});
  keys.bends = {{1000, 100}, {1010, -3000}, {1450, 8191}, {2400, 0}};
  Track bass{"Bass", 1, 33, {{0, 240, 40, 100}}};
  bass.bends = {{480, -8192}};
  return {480,
          120,
          {keys, {"Beat", 9, 0, {{960, 10, 36, 90}, {4800, 10, 42, 90}}}, bass},
          {{6000, 60}},
          {{0, 6, 8}, {4320, 4, 4}}};
}

std::string controls_of(const Track& track) {
  std::string all;
  for (const ControlMark& c : track.controls)
    all += std::to_string(c.tick) + (c.value >= 64 ? " down " : " up ");
  return all;
}

}  // namespace

TEST_CASE("Event tokens of rests, pedals and bends have the ids of MidiTok", "[music]") {
  const EventTokenizerOptions all{
      .time_signatures = true, .rests = true, .sustain_pedals = true, .pitch_bends = true};
  const EventTokenizer tsd("", all), remi("", bars(all));
  for (const auto& [name, in_tsd, in_remi] : {std::tuple{"Rest_0.1.8", 315, 348},
                                              {"Rest_1.0.4", 322, 355},
                                              {"Rest_2.0.2", 326, 359},
                                              {"Rest_12.0.2", 346, 379},
                                              {"Tempo_40.0", 347, 380},
                                              {"Program_0", 379, 412},
                                              {"TimeSig_3/8", 508, 541},
                                              {"Pedal_0", 517, 550},
                                              {"Pedal_-1", 645, 678},
                                              {"PedalOff_0", 646, 679},
                                              {"PitchBend_-8192", 775, 808},
                                              {"PitchBend_-7664", 776, 809},
                                              {"PitchBend_263", 791, 824},
                                              {"PitchBend_8191", 806, 839}}) {
    INFO(name);
    CHECK(tsd.id(name) == in_tsd);
    CHECK(remi.id(name) == in_remi);
  }
  EventTokenizerOptions piano = all;
  piano.programs = false;
  CHECK(EventTokenizer("", piano).size() == 422);
  CHECK(EventTokenizer("", bars(piano)).size() == 455);
  EventTokenizerOptions durations{
      .rests = true, .sustain_pedals = true, .sustain_pedal_duration = true};
  CHECK(EventTokenizer("", durations).size() == 637);
  CHECK(EventTokenizer("", bars(durations)).id("Pedal_-1") == 605);
  const auto named = tokenizer(
      "tsd", {.time_signatures = true, .rests = true, .sustain_pedals = true, .pitch_bends = true});
  CHECK(named->size() == 422);
  CHECK(error_of<stretto::Error>([] { tokenizer("tsd", {.sustain_pedal_duration = true}); }) ==
        "[tokenizer] sustain_pedal_duration needs sustain_pedals");
  CHECK(error_of<stretto::Error>([] { tokenizer("remi", {.rests = true}); }) ==
        "[tokenizer] remi has no option rests");
}

// The expected texts are MidiTok 3.1's.
TEST_CASE("Event tokens of a song with rests, pedals and bends are those of MidiTok", "[music]") {
  const MidiFile file = parsed(song_of_controls());
  const EventTokenizerOptions rests{.time_signatures = true, .rests = true};
  const EventTokenizer remi_rests("", bars(rests)), tsd_rests("", rests);
  CHECK(text(remi_rests, remi_rests.encode(file)) ==
        "Bar_None TimeSig_6/8 Position_0 Tempo_121.29 Program_33 Pitch_40 Velocity_99 "
        "Duration_1.0.8 Rest_3.0.2 Position_32 Program_0 Pitch_60 Velocity_63 Duration_2.0.8 "
        "Program_-1 PitchDrum_36 Velocity_91 Duration_0.1.8 Rest_2.0.2 Rest_0.1.8 Position_17 "
        "Program_0 Pitch_62 Velocity_63 Duration_0.1.8 Rest_1.3.4 Position_32 Program_0 "
        "Pitch_64 Velocity_63 Duration_0.2.8 Rest_7.1.2 Rest_0.2.8 TimeSig_4/4 Rest_1.0.4 "
        "Position_8 Program_-1 PitchDrum_42 Velocity_91 Duration_0.1.8 Rest_2.0.2 Rest_0.3.8 "
        "Position_28 Tempo_60.32 Rest_7.1.2 Position_24 Program_0 Pitch_65 Velocity_63 "
        "Duration_1.0.8");
  CHECK(text(tsd_rests, tsd_rests.encode(file)) ==
        "TimeSig_6/8 Tempo_121.29 Program_33 Pitch_40 Velocity_99 Duration_1.0.8 Rest_3.0.2 "
        "Program_0 Pitch_60 Velocity_63 Duration_2.0.8 Program_-1 PitchDrum_36 Velocity_91 "
        "Duration_0.1.8 Rest_2.0.2 Rest_0.1.8 Program_0 Pitch_62 Velocity_63 Duration_0.1.8 "
        "Rest_1.3.4 Program_0 Pitch_64 Velocity_63 Duration_0.2.8 Rest_7.1.2 Rest_0.2.8 "
        "TimeSig_4/4 Rest_1.0.4 Program_-1 PitchDrum_42 Velocity_91 Duration_0.1.8 Rest_2.0.2 "
        "Rest_0.3.8 Tempo_60.32 Rest_7.1.2 Program_0 Pitch_65 Velocity_63 Duration_1.0.8");
  const EventTokenizer pedals("", bars({.sustain_pedals = true}));
  CHECK(text(pedals, pedals.encode(file)) ==
        "Bar_None Position_0 Tempo_121.29 Program_33 Pitch_40 Velocity_99 Duration_0.4.8 "
        "Position_16 Pedal_0 Program_0 Pitch_60 Velocity_63 Duration_1.0.8 Program_-1 "
        "PitchDrum_36 Velocity_91 Duration_0.1.8 Bar_None Position_1 Program_0 Pitch_62 "
        "Velocity_63 Duration_0.1.8 Position_8 PedalOff_0 Program_0 Pitch_64 Velocity_63 "
        "Duration_0.1.8 Bar_None Position_16 Program_-1 PitchDrum_42 Velocity_91 Duration_0.1.8 "
        "Position_19 Pedal_0 Position_20 PedalOff_0 Bar_None Position_4 Tempo_60.32 Bar_None "
        "Bar_None Position_0 Program_0 Pitch_65 Velocity_63 Duration_1.0.8");
  const EventTokenizerOptions all{.time_signatures = true,
                                  .rests = true,
                                  .sustain_pedals = true,
                                  .sustain_pedal_duration = true,
                                  .pitch_bends = true};
  const EventTokenizer remi_all("", bars(all)), tsd_all("", all);
  CHECK(text(remi_all, remi_all.encode(file)) ==
        "Bar_None TimeSig_6/8 Position_0 Tempo_121.29 Program_33 Pitch_40 Velocity_99 "
        "Duration_1.0.8 Rest_1.0.4 Position_16 Program_33 PitchBend_-8192 Rest_2.0.2 "
        "Position_32 Pedal_0 Duration_6.1.4 Program_0 Pitch_60 Velocity_63 Duration_2.0.8 "
        "Program_-1 PitchDrum_36 Velocity_91 Duration_0.1.8 Position_33 Program_0 PitchBend_263 "
        "Position_34 Program_0 PitchBend_-2908 Bar_None TimeSig_6/8 Position_0 Program_0 "
        "PitchBend_8191 Rest_2.0.2 Rest_0.1.8 Position_17 Program_0 Pitch_62 Velocity_63 "
        "Duration_0.1.8 Rest_1.3.4 Position_32 Program_0 PitchBend_263 Program_0 Pitch_64 "
        "Velocity_63 Duration_0.2.8 Rest_7.1.2 Rest_0.2.8 TimeSig_4/4 Rest_1.0.4 Position_8 "
        "Program_-1 PitchDrum_42 Velocity_91 Duration_0.1.8 Rest_0.3.8 Position_12 Pedal_0 "
        "Duration_0.1.8 Rest_2.0.2 Position_28 Tempo_60.32 Rest_7.1.2 Position_24 Program_0 "
        "Pitch_65 Velocity_63 Duration_1.0.8");
  CHECK(text(tsd_all, tsd_all.encode(file)) ==
        "TimeSig_6/8 Tempo_121.29 Program_33 Pitch_40 Velocity_99 Duration_1.0.8 Rest_1.0.4 "
        "Program_33 PitchBend_-8192 Rest_2.0.2 Pedal_0 Duration_6.1.4 Program_0 Pitch_60 "
        "Velocity_63 Duration_2.0.8 Program_-1 PitchDrum_36 Velocity_91 Duration_0.1.8 "
        "TimeShift_0.1.8 Program_0 PitchBend_263 TimeShift_0.1.8 Program_0 PitchBend_-2908 "
        "TimeShift_1.6.8 Program_0 PitchBend_8191 Rest_2.0.2 Rest_0.1.8 Program_0 Pitch_62 "
        "Velocity_63 Duration_0.1.8 Rest_1.3.4 Program_0 PitchBend_263 Program_0 Pitch_64 "
        "Velocity_63 Duration_0.2.8 Rest_7.1.2 Rest_0.2.8 TimeSig_4/4 Rest_1.0.4 Program_-1 "
        "PitchDrum_42 Velocity_91 Duration_0.1.8 Rest_0.3.8 Pedal_0 Duration_0.1.8 Rest_2.0.2 "
        "Tempo_60.32 Rest_7.1.2 Program_0 Pitch_65 Velocity_63 Duration_1.0.8");
}

TEST_CASE("Pedals and bends are decoded", "[music]") {
  for (const bool duration : {false, true}) {
    const EventTokenizer tokens("", bars({.time_signatures = true,
                                          .rests = true,
                                          .sustain_pedals = true,
                                          .sustain_pedal_duration = duration,
                                          .pitch_bends = true}));
    const Song song = tokens.decode(tokens.encode(parsed(song_of_controls())));
    for (const Track& track : song.tracks) {
      if (track.program == 33) REQUIRE(track.bends.size() == 1);
      if (track.program == 33) CHECK(track.bends[0].value == -8192);
      if (track.name == "Piano")
        CHECK(controls_of(track) == (duration ? "960 down 2460 up 5040 down 5100 up "
                                              : "960 down 2430 up 5040 down 5100 up "));
    }
  }
  // A pedal that is not released ends with the music.
  const EventTokenizer tokens("", {.sustain_pedals = true});
  const Song song = tokens.decode({tokens.id("Pedal_5"), tokens.id("TimeShift_1.0.8")});
  REQUIRE(song.tracks.size() == 1);
  CHECK(controls_of(song.tracks[0]) == "0 down 480 up ");
}

TEST_CASE("A pedal has the program of the notes before its release", "[music]") {
  Song song = piano_song({{0, 480, 60, 64}, {960, 480, 62, 64}, {1920, 480, 64, 64}});
  song.tracks[0].controls = {{0, sustain_pedal, 127}, {960, sustain_pedal, 0}};
  MidiFile file = parsed(song);
  file.notes[0].program = 29;
  file.notes[1].program = 4;
  const EventTokenizer tokens("", bars({.sustain_pedals = true}));
  CHECK_THAT(text(tokens, tokens.encode(file)),
             Containing("Pedal_29 ") && Containing("PedalOff_29 ") && !Containing("Pedal_4 "));
}

TEST_CASE("Pedals and bends anywhere are read without a crash", "[music]") {
  MidiFile file = parsed(song_of_controls());
  for (ControlChange& c : file.controls) c.tick -= 3000;
  file.controls.push_back({int64_t{1} << 40, 0, sustain_pedal, 127, 1});
  file.controls.push_back({int64_t{1} << 50, 0, sustain_pedal, 0, 1});
  file.controls.push_back({5, 7, sustain_pedal, 127, 9});
  file.pitch_bends.push_back({-10, 0, 5, 1});
  file.pitch_bends.push_back({int64_t{1} << 50, 0, 5, 1});
  file.pitch_bends.push_back({0, 15, 8191, -4});
  for (const EventTokenizer& tokens : all_event_tokenizers()) {
    CHECK(tokens.encode(file).size() < 60'000);
    MidiFile silent = file;
    silent.notes.clear();
    CHECK_NOTHROW(tokens.decode(tokens.encode(silent)));
  }
}

TEST_CASE("Controls and bends of a song are written, or refused", "[music]") {
  Song song = piano_song({{0, 480, 60, 64}});
  song.tracks[0].controls = {{480, 7, 100}, {10, 64, 127}};
  song.tracks[0].bends = {{20, -8192}, {480, 8191}};
  const MidiFile file = parsed(song);
  CHECK(file.controls == std::vector<ControlChange>{{10, 0, 64, 127, 1}, {480, 0, 7, 100, 1}});
  CHECK(file.pitch_bends == std::vector<PitchBend>{{20, 0, -8192, 1}, {480, 0, 8191, 1}});
  const auto refusal = [](std::vector<ControlMark> controls, std::vector<BendMark> bends) {
    Song bad = piano_song({{0, 480, 60, 64}});
    bad.tracks[0].controls = std::move(controls);
    bad.tracks[0].bends = std::move(bends);
    return error_of<stretto::Error>([&] { midi_bytes(bad); });
  };
  CHECK(refusal({{-1, 64, 0}}, {}) ==
        "[write_midi] track 0 has a control at tick -1; expected 0 to 2^28 - 1");
  CHECK(refusal({{0, 120, 0}}, {}) == "[write_midi] track 0 has a control 120; expected 0 to 119");
  CHECK(refusal({{0, 64, 128}}, {}) ==
        "[write_midi] track 0 has a control of value 128; expected 0 to 127");
  CHECK(refusal({}, {{1 << 28, 0}}) ==
        "[write_midi] track 0 has a bend at tick 268435456; expected 0 to 2^28 - 1");
  CHECK(refusal({}, {{0, 8192}}) ==
        "[write_midi] track 0 has a bend of 8192; expected -8192 to 8191");
}
