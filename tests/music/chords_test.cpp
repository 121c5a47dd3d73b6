#include "music/chords.h"

#include <string>

#include "core/error.h"
#include "music/remi.h"
#include "music/tokenizer.h"
#include "tests/music/songs.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using stretto::testing::error_of;

/// Notes of one length at one time.
std::vector<ChordNote> sounding(const std::vector<int>& pitches, int64_t start, int64_t end) {
  std::vector<ChordNote> notes;
  for (const int pitch : pitches) notes.push_back({start, end, pitch});
  return notes;
}

/// Returns "C_M", "A_m7", or "N" for no chord.
std::string text(const Chord& chord) {
  const char* roots[] = {"C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"};
  if (chord.root < 0) return "N";
  return std::string(roots[chord.root]) + "_" + chord_quality_names[size_t(chord.quality)];
}

std::string texts(const std::vector<ChordNote>& notes) {
  std::string all;
  for (const Chord& chord : recognize_chords(notes, 4))
    all += (all.empty() ? "" : " ") + text(chord);
  return all;
}

}  // namespace

TEST_CASE("Each quality of chords is recognized on each root", "[music]") {
  struct Case {
    const char* quality;
    std::vector<int> steps;
  };
  for (const Case& c : {Case{"+", {0, 4, 8}}, Case{"/o7", {0, 3, 6, 10}}, Case{"7", {0, 4, 7, 10}},
                        Case{"M", {0, 4, 7}}, Case{"M7", {0, 4, 7, 11}}, Case{"m", {0, 3, 7}},
                        Case{"m7", {0, 3, 7, 10}}, Case{"o", {0, 3, 6}}, Case{"o7", {0, 3, 6, 9}},
                        Case{"sus2", {0, 2, 7}}, Case{"sus4", {0, 5, 7}}})
    for (int root = 0; root < 12; ++root) {
      std::vector<int> pitches;
      for (const int step : c.steps) pitches.push_back(48 + root + step);
      const std::vector<Chord> found = recognize_chords(sounding(pitches, 0, 16), 4);
      REQUIRE(found.size() == 4);
      INFO(c.quality << " on " << root);
      for (const Chord& chord : found) {
        CHECK(chord.root == root);
        CHECK(std::string(chord_quality_names[size_t(chord.quality)]) == c.quality);
      }
    }
}

TEST_CASE("Chords change by beat or by half bar", "[music]") {
  CHECK(texts({}).empty());
  CHECK(texts(sounding({60}, 0, 3)) == "N");                // shorter than the beat
  CHECK(texts(sounding({60, 64, 67}, 0, 5)) == "C_M C_M");  // a half bar has one chord
  auto notes = sounding({60, 64, 67}, 0, 4);
  for (const ChordNote& note : sounding({57, 60, 64}, 4, 8)) notes.push_back(note);
  for (const ChordNote& note : sounding({55, 59, 62, 65}, 16, 24)) notes.push_back(note);
  CHECK(texts(notes) == "C_M A_m N N G_7 G_7");
  // Beats whose chords fit as well as that of the half bar keep their chords.
  notes = sounding({60, 64, 67}, 0, 8);
  notes.push_back({0, 4, 70}), notes.push_back({4, 8, 63});
  CHECK(texts(notes) == "C_7 C_M");
  // The bass decides between chords with the same notes: A C E G is Am7, or C with A.
  CHECK(texts(sounding({57, 60, 64, 67}, 0, 8)) == "A_m7 A_m7");
}

TEST_CASE("Chords of notes out of range are refused", "[music]") {
  const auto refused = [](const ChordNote& note, int64_t beat) {
    return error_of<stretto::Error>([&] { recognize_chords({note}, beat); });
  };
  CHECK_THAT(refused({0, 4, 60}, 0), Containing("[recognize_chords] a beat of 0 units"));
  CHECK_THAT(refused({0, 4, -1}, 4), Containing("of pitch -1"));
  CHECK_THAT(refused({-1, 4, 60}, 4), Containing("a note from -1 to 4"));
  CHECK_THAT(refused({5, 4, 60}, 4), Containing("a note from 5 to 4"));
  CHECK_THAT(refused({0, INT64_MAX, 60}, 4), Containing(" beats; expected fewer than "));
}

TEST_CASE("REMI has tokens of chords if they are recognized", "[music]") {
  Song song = piano_song({});
  for (const int pitch : {60, 64, 67}) song.tracks[0].notes.push_back({0, 1920, pitch, 64});
  for (const int pitch : {57, 60, 64}) song.tracks[0].notes.push_back({1920, 960, pitch, 64});
  const MidiFile file = parsed(song);
  const auto plain = tokenizer("remi"), with_chords = tokenizer("remi", {.chords = true});
  const auto chords_of = [&](const Tokenizer& tokens) {
    std::string all;
    for (const int64_t id : tokens.encode(file))
      if (tokens.token_name(id).rfind("Chord_", 0) == 0) all += tokens.token_name(id) + " ";
    return all;
  };
  CHECK(chords_of(*plain).empty());
  CHECK(chords_of(*with_chords) == "Chord_C_M Chord_A_m ");
  const std::vector<int64_t> tokens = with_chords->encode(file);
  CHECK(remi_tokens(remi_song(tokens)) == tokens);
  std::vector<int64_t> higher;
  for (const int64_t token : tokens) higher.push_back(with_chords->transposed(token, 2));
  CHECK(remi_song(higher).chords[0].value == remi_chord_qualities * 2 + int(ChordQuality::major));
  CHECK(with_chords->decode(tokens).tracks[0].notes.size() == 6);
}
