// REMI: its tokens, conversion from MIDI files and back.

#include "music/remi.h"

#include <algorithm>

#include "examples/common/portable_random.h"
#include "music/tokenizer.h"
#include "tests/music/songs.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using namespace stretto::testing;         // NOLINT
using stretto::examples::PortableRandom;

std::string text(const std::vector<int64_t>& tokens) {
  std::string all;
  for (const int64_t token : tokens)
    all += (all.empty() ? "" : " ") + remi_words().at(size_t(token)).name;
  return all;
}

std::vector<int64_t> tokens_of(const std::vector<std::string>& names) {
  std::vector<int64_t> tokens;
  for (const std::string& name : names) {
    const auto it = std::find_if(remi_words().begin(), remi_words().end(),
                                 [&](const RemiWord& word) { return word.name == name; });
    REQUIRE(it != remi_words().end());
    tokens.push_back(int(it - remi_words().begin()));
  }
  return tokens;
}

}  // namespace

TEST_CASE("REMI's ids are the positions in the published vocabulary", "[music]") {
  const auto& words = remi_words();
  REQUIRE(int(words.size()) == remi_size);
  CHECK(std::is_sorted(words.begin(), words.end(),
                       [](const RemiWord& a, const RemiWord& b) { return a.name < b.name; }));
  const std::vector<std::pair<int, std::string>> known{{0, "Bar_None"},
                                                       {1, "Beat_0"},
                                                       {2, "Beat_1"},
                                                       {3, "Beat_10"},
                                                       {16, "Beat_9"},
                                                       {17, "Chord_A#_+"},
                                                       {149, "Chord_N_N"},
                                                       {150, "EOS_None"},
                                                       {151, "Note_Duration_0"},
                                                       {152, "Note_Duration_1080"},
                                                       {167, "Note_Duration_960"},
                                                       {168, "Note_Pitch_100"},
                                                       {176, "Note_Pitch_22"},
                                                       {253, "Note_Pitch_99"},
                                                       {254, "Note_Velocity_40"},
                                                       {277, "Note_Velocity_86"},
                                                       {278, "Tempo_101"},
                                                       {331, "Tempo_98"}};
  for (const auto& [id, name] : known) CHECK(words[size_t(id)].name == name);
  for (size_t i = 0; i < words.size(); ++i) CHECK(remi_id(words[i].kind, words[i].value) == int(i));
  const auto count = [&](RemiKind kind) {
    return std::count_if(words.begin(), words.end(),
                         [&](const RemiWord& word) { return word.kind == kind; });
  };
  CHECK(count(RemiKind::chord) == 133);
  CHECK(count(RemiKind::duration) == 17);
  CHECK(count(RemiKind::pitch) == 86);
  CHECK(count(RemiKind::velocity) == 24);
  CHECK(count(RemiKind::tempo) == 54);
  CHECK(tokenizer("remi")->size() == 333);
  CHECK(tokenizer("remi")->pad == 332);
}

TEST_CASE("velocities and tempos are rounded to the nearest token", "[music]") {
  const auto velocity = [](double v) { return remi_nearest(RemiKind::velocity, v); };
  CHECK(velocity(1) == 40);
  CHECK(velocity(60) == 60);
  CHECK(velocity(61) == 60);
  CHECK(velocity(61.5) == 62);
  CHECK(velocity(127) == 86);
  const auto tempo = [](double t) { return remi_nearest(RemiKind::tempo, t); };
  CHECK(tempo(3) == 32);
  CHECK(tempo(120) == 119);
  CHECK(tempo(120.6) == 122);
  CHECK(tempo(152) == 149);  // 149 and 155 are equally near
  CHECK(tempo(6e7) == 224);
}

TEST_CASE("REMI encodes bars, beats, tempos and notes in order", "[music]") {
  Song song =
      piano_song({{0, 480, 60, 64}, {0, 480, 72, 81}, {300, 30, 50, 20}, {1920, 4000, 21, 127}});
  song.quarters_per_minute = 90;
  song.tempos = {{960, 100}, {2400, 200}, {9600, 50}};
  CHECK(text(remi_tokens(quantized(parsed(song)))) ==
        "Bar_None Beat_0 Tempo_89 Note_Pitch_72 Note_Velocity_80 Note_Duration_480 "
        "Note_Pitch_60 Note_Velocity_64 Note_Duration_480 "
        "Beat_3 Note_Pitch_50 Note_Velocity_40 Note_Duration_0 Beat_8 Tempo_101 "
        "Bar_None Beat_0 Note_Pitch_33 Note_Velocity_86 Note_Duration_1920 "
        "Beat_4 Tempo_200 Bar_None EOS_None");
}

TEST_CASE("REMI's grid is a quarter of a beat for any MIDI division", "[music]") {
  const auto notes = [](const MidiFile& file) { return quantized(file).notes; };
  const std::vector<PianoNote> expected{{1, 2, 60, 64}, {6, 16, 62, 64}};
  for (const int division : {480, 96, 12, 960}) {
    Song song = piano_song(
        {{division / 4, division / 2, 60, 64}, {6 * division / 4, 5 * division, 62, 64}});
    song.ticks_per_quarter = division;
    CHECK(notes(parsed(song)) == expected);
  }
  // SMPTE: 25 frames per second with 40 ticks of 1 ms; at 120 beats per minute a sixteenth
  // is 125 ms.
  MidiFile smpte;
  smpte.division = {0, 25, 40};
  smpte.tempo_maps = {TempoMap(smpte.division)};
  smpte.tracks = {{"", 3000}};
  smpte.notes = {{130, 240, 0, 0, 60, 64, 0, 0, 0}, {760, 2240, 0, 0, 62, 64, 0, 0, 0}};
  CHECK(notes(smpte) == expected);
  CHECK(quantized(smpte).bars == 1);
}

TEST_CASE("REMI's bars are aligned with the first 4/4 time signature", "[music]") {
  MidiFile file = parsed(piano_song({{0, 120, 60, 64}, {480, 120, 62, 64}}));
  file.time_signatures = {{0, 1, 4, 0}, {480, 4, 4, 0}, {960, 2, 2, 0}};
  const RemiSong song = quantized(file);
  CHECK(song.bars == 2);
  CHECK(song.notes == std::vector<PianoNote>{{12, 1, 60, 64}, {16, 1, 62, 64}});
  file.time_signatures = {{0, 3, 4, 0}};
  CHECK(quantized(file).notes == std::vector<PianoNote>{{0, 1, 60, 64}, {4, 1, 62, 64}});
}

TEST_CASE("REMI merges tracks into one piano and drops drums", "[music]") {
  Song song = piano_song({{0, 960, 60, 50}});
  song.tracks.push_back({"Left", 1, 0, {{0, 480, 60, 70}}});
  song.tracks.push_back({"Right", 2, 0, {{240, 240, 60, 60}}});
  song.tracks.push_back({"Drums", drum_channel, 0, {{0, 120, 40, 100}}});
  CHECK(quantized(parsed(song)).notes == std::vector<PianoNote>{{0, 2, 60, 70}, {2, 2, 60, 60}});
}

TEST_CASE("REMI is exact for quantized songs", "[music]") {
  PortableRandom random(3);
  for (int trial = 0; trial < 50; ++trial) {
    RemiSong song;
    song.bars = 1 + random.below(6);
    song.tempos = {{0, 89}, {3 + random.below(10), 92 + 3 * random.below(20)}};
    song.chords = {{0, remi_no_chord}, {4, random.below(132)}};
    for (int i = 0; i < 40; ++i)
      song.notes.push_back({random.below(16 * int(song.bars)), random.below(17),
                            remi_low + random.below(86), 40 + 2 * random.below(24)});
    song.notes.push_back({16 * song.bars - 1, 1, 60, 60});
    play_on_one_piano(song.notes);
    const std::vector<int64_t> tokens = remi_tokens(song);
    CHECK(remi_song(tokens) == song);
    RemiSong played = song;
    played.chords.clear();  // MIDI has no chords
    CHECK(quantized(parsed(to_song(song))) == played);
  }
}

TEST_CASE("REMI notes of duration 0 are audible in MIDI, and are read as 0 again", "[music]") {
  const RemiSong song = remi_song(
      tokens_of({"Bar_None", "Beat_2", "Note_Pitch_60", "Note_Velocity_64", "Note_Duration_0",
                 "Beat_3", "Note_Pitch_60", "Note_Velocity_64", "Note_Duration_120"}));
  const Song written = to_song(song);
  REQUIRE(written.tracks[0].notes.size() == 2);
  // A sixteenth has 120 ticks; 60 ticks would round to a sixteenth.
  CHECK(written.tracks[0].notes[0].start == 240);
  CHECK(written.tracks[0].notes[0].duration == 59);
  CHECK(written.tracks[0].notes[1].duration == 120);
  CHECK(quantized(parsed(written)).notes == song.notes);

  // Short notes of a performance are not lost.
  PortableRandom random(4);
  std::vector<Note> staccato;
  for (int i = 0; i < 200; ++i)
    staccato.push_back({120 * i, 1 + random.below(59), 40 + random.below(40), 60});
  const Song played = to_song(quantized(parsed(piano_song(staccato))));
  REQUIRE(played.tracks[0].notes.size() == staccato.size());
  for (const Note& note : played.tracks[0].notes) CHECK(note.duration == 59);
}

TEST_CASE("REMI tokens can be decoded in any order", "[music]") {
  const auto notes = [](const std::vector<std::string>& names) {
    return remi_song(tokens_of(names)).notes;
  };
  const std::string p = "Note_Pitch_60", v = "Note_Velocity_64", d = "Note_Duration_240";
  const std::vector<PianoNote> one{{0, 2, 60, 64}};
  CHECK(notes({p, v, d}) == one);
  CHECK(notes({"Bar_None", p, p, v, d, d, v, d, p, d, v}) == one);
  CHECK(notes({p, v, "Beat_3", d}).empty());
  CHECK(notes({p, "Bar_None", v, d}).empty());
  CHECK(notes({p, v, d, "EOS_None", p, v, d}) == one);
  CHECK(notes({"Bar_None", "Beat_8", p, v, d, "Beat_4", p, v, d}) ==
        std::vector<PianoNote>{{4, 2, 60, 64}, {8, 2, 60, 64}});
  CHECK(notes({"Bar_None", "Beat_8", p, v, d, "Bar_None", p, v, d}) ==
        std::vector<PianoNote>{{8, 2, 60, 64}, {16, 2, 60, 64}});
  CHECK(remi_song({}).bars == 0);
  CHECK(remi_song({-1, 332, 1 << 30}).notes.empty());
  CHECK(remi_song(tokens_of({"Tempo_89", "Tempo_98", "Beat_2", "Tempo_50", "Beat_0", "Tempo_32"}))
            .tempos == std::vector<RemiSong::Mark>{{0, 32}, {2, 50}});

  PortableRandom random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> tokens;
    for (int i = 0; i < 300; ++i) tokens.push_back(random.below(340) - 4);
    std::erase(tokens, remi_id(RemiKind::end));
    const RemiSong song = remi_song(tokens);
    CHECK(remi_song(remi_tokens(song)) == song);
    CHECK_NOTHROW(parsed(to_song(song)));
  }
}

TEST_CASE("REMI's pitches and chords are transposed by semitones", "[music]") {
  const auto shared = tokenizer("remi");
  const Tokenizer& remi = *shared;
  const auto moved = [&](const std::string& from, int semitones) {
    return remi_words()[size_t(remi.transposed(tokens_of({from}).front(), semitones))].name;
  };
  CHECK(moved("Note_Pitch_60", -6) == "Note_Pitch_54");
  CHECK(moved("Chord_A_m7", 6) == "Chord_D#_m7");
  CHECK(moved("Chord_C_/o7", -1) == "Chord_B_/o7");
  for (const char* fixed : {"Chord_N_N", "Bar_None", "Note_Velocity_60", "Tempo_62"})
    CHECK(moved(fixed, 5) == fixed);
  CHECK(remi.transposed(remi.pad, 3) == remi.pad);
}
