// Style profiles of small examples, counted by hand.
#include "examples/groove/groove_style.h"

#include <cmath>
#include <numeric>
#include <stdexcept>

#include "examples/common/portable_random.h"
#include "examples/groove/groove_report.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT

double total(const Profile& profile) {
  return std::accumulate(profile.begin(), profile.end(), 0.0);
}

double at(const Profile& profile, int row, int column) {
  return profile.at(size_t(row * 24 + column));
}

}  // namespace

TEST_CASE(
    "time-pitch: pairs are counted by interval and distance; simultaneous notes in both orders",
    "[examples][groove]") {
  // Two simultaneous notes, a note 3 ticks later, and a note four beats after the first.
  const Profile p =
      time_pitch_profile({{0, 6, 60, 80}, {0, 6, 64, 80}, {3, 6, 62, 80}, {48, 1, 60, 80}});
  CHECK(p.size() == 41 * 24);
  CHECK(at(p, 20 + 4, 0) == 1);
  CHECK(at(p, 20 - 4, 0) == 1);
  CHECK(at(p, 20 + 2, 1) == 1);  // 3 ticks are 1.5 sixths of a beat
  CHECK(at(p, 20 - 2, 1) == 1);
  CHECK(at(p, 20 - 2, 22) == 1);  // from the third note to the last, 45 ticks
  CHECK(total(p) == 5);           // pairs 48 ticks apart are not counted
  CHECK(at(time_pitch_profile({{0, 1, 60, 80}, {47, 1, 60, 80}}), 20, 23) == 1);
  // The widest interval, and a wider one, which is not counted.
  CHECK(at(time_pitch_profile({{5, 1, 60, 80}, {10, 1, 80, 80}}), 40, 2) == 1);
  CHECK(at(time_pitch_profile({{10, 1, 60, 80}, {5, 1, 80, 80}}), 0, 2) == 1);
  CHECK(total(time_pitch_profile({{5, 1, 60, 80}, {10, 1, 81, 80}})) == 0);
  CHECK(total(time_pitch_profile({{5, 1, 60, 80}})) == 0);
}

TEST_CASE("time-pitch equals the sum over all ordered pairs", "[examples][groove]") {
  PortableRandom random(3);
  const std::vector<Note> notes = random_groove(random, 200).tracks[2].notes;
  Profile slow(41 * 24);
  for (size_t i = 0; i < notes.size(); ++i)
    for (size_t j = 0; j < notes.size(); ++j) {
      const double time = (notes[j].start - notes[i].start) / 12.0;
      const int interval = notes[j].pitch - notes[i].pitch;
      if (i == j || time < 0 || time >= 4 - 1e-9 || std::abs(interval) > 20) continue;
      slow[size_t((interval + 20) * 24 + int(time * 6 + 1e-9))] += 1;
    }
  CHECK(total(slow) > 100);
  CHECK(time_pitch_profile(notes) == slow);
}

TEST_CASE("onset-duration: counts by onset in the bar and duration, in sixths of a beat",
          "[examples][groove]") {
  const std::vector<Note> notes{{0, 1, 60, 80},         // row 0, column 0
                                {48 + 3, 2, 60, 80},    // 1, 1
                                {96 + 47, 24, 60, 80},  // two beats: the last row; column 23
                                {0, 25, 60, 80},        // too long
                                {4, 23, 60, 80}};       // 11, 2
  const Profile p = onset_duration_profile(notes);
  CHECK(p.size() == 12 * 24);
  CHECK(at(p, 0, 0) == 1);
  CHECK(at(p, 1, 1) == 1);
  CHECK(at(p, 11, 23) == 1);
  CHECK(at(p, 11, 2) == 1);
  CHECK(total(p) == 4);
  // In the published code, ticks 0 to 4 of a bar are binned as beats 0 to 4.
  const Profile published = onset_duration_profile(notes, OnsetUnit::published_ticks);
  CHECK(at(published, 0, 0) == 1);
  CHECK(at(published, 1, 18) == 1);
  CHECK(at(published, 11, 23) == 1);  // tick 4 is in the last bin
  CHECK(total(published) == 3);
}

TEST_CASE("onset-drum: counts by drum pitch and onset in the bar", "[examples][groove]") {
  const std::vector<Note> notes{{0, 1, 36, 80}, {48, 99, 36, 80}, {6, 1, 127, 80}};
  const Profile p = onset_drum_profile(notes);
  CHECK(p.size() == 128 * 24);
  CHECK(at(p, 36, 0) == 2);
  CHECK(at(p, 127, 3) == 1);
  CHECK(total(p) == 3);
  CHECK(total(onset_drum_profile(notes, OnsetUnit::published_ticks)) == 2);
}

TEST_CASE("cosine_similarity is the cosine of two profiles", "[examples][groove]") {
  CHECK(cosine_similarity({1, 2, 2}, {2, 4, 4}) == Approx(1));
  CHECK(cosine_similarity({1, 0}, {0, 3}) == 0);
  CHECK(cosine_similarity({3, 4}, {4, 3}) == Approx(24.0 / 25));
  CHECK(cosine_similarity({0, 0}, {4, 3}) == 0);
  CHECK(error_of<std::invalid_argument>([] {
          cosine_similarity({1}, {1, 2});
        }) == "cosine_similarity: profiles of 1 and 2 elements");
}

TEST_CASE("outputs are compared quarter by quarter, with their profiles added",
          "[examples][groove]") {
  Song reference = empty_groove();
  reference.tracks[bass_track].notes = {{0, 6, 40, 80}, {24, 6, 40, 80}};
  reference.tracks[drum_track].notes = {{0, 6, 36, 80}};
  // Quarters of 48 ticks: like the reference, like its first half, silent, different onsets.
  Song output = empty_groove();
  output.tracks[bass_track].notes = {
      {0, 6, 40, 80}, {24, 6, 40, 80}, {49, 6, 40, 80}, {180, 12, 50, 80}};
  const StyleSimilarity s = style_similarity(reference, {output});
  CHECK(s.onset[0][bass_track] == Approx(1));
  CHECK(s.onset[1][bass_track] == Approx(std::sqrt(0.5)));  // tick 49 counts as tick 48
  CHECK(s.onset[2][bass_track] == 0);
  CHECK(s.onset[3][bass_track] == 0);
  CHECK(s.onset[0][drum_track] == 0);            // the output has none
  CHECK(std::isnan(s.onset[0][harmony_track]));  // the reference has none
  CHECK(s.mean_onset(0) == Approx(0.5));
  CHECK(s.time_pitch[0][bass_track] == Approx(1));
  CHECK(s.time_pitch[1][bass_track] == 0);
  CHECK(std::isnan(s.time_pitch[0][drum_track]));
  CHECK(s.mean_time_pitch(0) == Approx(1));

  // Profiles of outputs are added: (1, 1) + (1, 0), compared with (1, 1).
  Song half = output;
  half.tracks[bass_track].notes = {{0, 6, 40, 80}, {180, 12, 50, 80}};
  CHECK(style_similarity(reference, {output, half}).onset[0][bass_track] ==
        Approx(3 / std::sqrt(2 * 5.0)));
  // A note on the border of two quarters counts in both.
  Song border = output;
  border.tracks[bass_track].notes = {{48, 6, 40, 80}, {180, 12, 50, 80}};
  const StyleSimilarity both = style_similarity(reference, {border});
  CHECK(both.onset[0][bass_track] == Approx(std::sqrt(0.5)));
  CHECK(both.onset[1][bass_track] == Approx(std::sqrt(0.5)));

  const StyleSimilarity none = style_similarity(empty_groove(), {output});
  CHECK(std::isnan(none.mean_onset(0)));
  const StyleSimilarity nothing = style_similarity(reference, {});
  CHECK(nothing.onset[0][bass_track] == 0);

  const std::string table = style_table(s);
  CHECK_THAT(table, Containing("onset-duration, bass       1.000   0.707   0.000   0.000   0.427"));
  CHECK_THAT(table, Containing("onset-duration, harmony        -       -       -       -       -"));
}

TEST_CASE("a groove is similar to itself, and its piano roll can be drawn", "[examples][groove]") {
  PortableRandom random(4);
  const Song groove = random_groove(random, 16);
  for (const OnsetUnit unit : {OnsetUnit::beats, OnsetUnit::published_ticks}) {
    // A groove repeated four times has equal quarters; the last note determines their end.
    Song whole = groove;
    for (Track& track : whole.tracks) {
      std::vector<Note>& notes = track.notes;
      std::erase_if(notes, [](const Note& n) { return n.start + n.duration > 16 * 12 - 1; });
      const std::vector<Note> once = notes;
      for (int i = 1; i < 4; ++i)
        for (Note note : once) {
          note.start += i * 16 * 12;
          notes.push_back(note);
        }
    }
    Song once = whole;
    for (Track& track : once.tracks)
      std::erase_if(track.notes, [](const Note& n) { return n.start >= 16 * 12; });
    whole.tracks[0].notes.push_back(
        {4 * 16 * 12 - 30, 30, 3, 80});  // too long to count in the profile
    const StyleSimilarity s = style_similarity(once, {whole}, unit);
    for (size_t chunk = 0; chunk < 3; ++chunk) CHECK(s.mean_onset(chunk) > 0.98);
  }
  CHECK_THAT(groove_roll(empty_groove(), ""), Containing("drums"));
  Song endless = groove;
  endless.tracks[0].notes.push_back({1 << 27, 5, 40, 80});
  CHECK(groove_roll(endless, "") == groove_roll(groove, ""));
}

TEST_CASE("mean_similarity averages each value, ignoring NaN", "[examples][groove]") {
  const Song empty = empty_groove();
  PortableRandom random(4);
  const Song groove = random_groove(random, 16);
  const StyleSimilarity like = style_similarity(groove, {groove}),
                        none = style_similarity(empty, {groove});
  const StyleSimilarity unlike = style_similarity(groove, {empty});
  CHECK(std::isnan(none.onset[0][0]));
  const StyleSimilarity mean = mean_similarity({like, none, unlike, like});
  for (size_t chunk = 0; chunk < style_chunks; ++chunk)
    for (size_t track = 0; track < 3; ++track) {
      CHECK(mean.onset[chunk][track] == Approx(2 * like.onset[chunk][track] / 3));
      if (track != drum_track)
        CHECK(mean.time_pitch[chunk][track] == Approx(2 * like.time_pitch[chunk][track] / 3));
    }
  CHECK(std::isnan(mean.time_pitch[0][drum_track]));
  CHECK(std::isnan(mean_similarity({none}).onset[2][1]));
  CHECK(std::isnan(mean_similarity({}).onset[0][0]));
}
