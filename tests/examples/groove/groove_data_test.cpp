// Generated songs, augmentation, batches, and the n-gram baseline.
#include "examples/groove/groove_data.h"

#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "examples/common/error.h"
#include "examples/groove/groove_augmentation.h"
#include "examples/groove/groove_generator.h"
#include "examples/groove/groove_midi.h"
#include "examples/groove/groove_tokens.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT

std::vector<Note> line(int bars, int pitch) {
  std::vector<Note> notes;
  for (int i = 0; i < bars; ++i) notes.push_back({48 * i, 47, pitch, 80});
  return notes;
}

Song toy_song(int bars) {
  return {12,
          120,
          {{"Bass", 0, 33, line(bars, 40)},
           {"Drums", 9, 0, line(bars, 36)},
           {"a", 2, 1, line(bars, 60)},
           {"none", 2, 2, {}},
           {"b", 2, 3, line(bars, 61)}}};
}

/// The fraction of 4000 calls in which f(random) is true.
template <class F>
double share(const F& f) {
  PortableRandom random(8);
  int count = 0;
  for (int i = 0; i < 4000; ++i) count += f(random);
  return count / 4000.0;
}

}  // namespace

TEST_CASE("generated songs are complete, and the same for the same seed", "[examples][groove]") {
  std::set<std::string> songs;
  std::set<double> tempos;  // each family has its own
  for (const Song& song : generate_grooves(3, 0, 200)) {
    songs.insert(fingerprint({song}));
    tempos.insert(song.quarters_per_minute);
    CHECK(missing_part(song).empty());
    CHECK(song.tracks.size() <= 2 + 3);
    const Song groove = with_fullest_harmony(song);
    CHECK(bars_of(groove) % 4 == 0);
    CHECK(bars_of(groove) >= 4);
    CHECK(bars_of(groove) <= 24);
    CHECK(same_notes(to_groove(to_tokens(groove)), groove));
    CHECK(to_tokens(first_bars(groove, 2)).size() > 20);
    CHECK_NOTHROW(midi_bytes(groove));
    for (size_t i = harmony_track; i < song.tracks.size(); ++i)
      for (const Note& note : song.tracks[i].notes) CHECK((note.pitch >= 52 && note.pitch <= 84));
    for (const Note& note : song.tracks[bass_track].notes)
      CHECK((note.pitch >= 27 && note.pitch <= 55));
  }
  CHECK(songs.size() == 200);
  CHECK(tempos.size() == 7);
  CHECK(fingerprint(generate_grooves(3, 0, 20)) == fingerprint(generate_grooves(3, 0, 20)));
  CHECK(fingerprint(generate_grooves(3, 5, 1)) == fingerprint({generate_groove(3, 5)}));
  CHECK(fingerprint(generate_grooves(3, 0, 20)) != fingerprint(generate_grooves(4, 0, 20)));
  // The same on every machine and with every standard library.
  CHECK(fingerprint(generate_grooves(1, 0, 50)) == "1e562a3a54afc9d9");
}

TEST_CASE("the patterns of all families fill a bar", "[examples][groove]") {
  for (const GrooveFamily& f : groove_families()) {
    INFO(f.name);
    for (const Patterns& patterns :
         {f.kick, f.snare, f.cymbal, f.color, f.bass, f.piano, f.guitar}) {
      REQUIRE(!patterns.empty());
      for (const std::string& pattern : patterns) {
        CHECK(pattern.size() == f.kick[0].size());
        CHECK(48 % pattern.size() == 0);
        CHECK(pattern[0] != '-');  // there is no note to extend
        CHECK(pattern.find_first_not_of(".-xnrtfoa") == std::string::npos);
      }
    }
  }
}

TEST_CASE("bars of grooves are counted, kept and removed", "[examples][groove]") {
  Song groove = empty_groove();
  CHECK(bars_of(groove) == 0);
  groove.tracks[0].notes = {{0, 47, 40, 80}, {40, 8, 41, 80}, {40, 56, 42, 80}, {96, 1, 43, 80}};
  CHECK(end_of(groove) == 97);
  CHECK(bars_of(groove) == 3);
  CHECK(first_bars(groove, 1).tracks[0].notes.size() ==
        1);  // a note that ends later is not included
  CHECK(first_bars(groove, 2).tracks[0].notes.size() == 2);
  CHECK(first_bars(groove, 3).tracks[0].notes.size() == 4);
  CHECK(same_notes(without_bars(groove, 1).tracks[0].notes, {{48, 1, 43, 80}}));
  const Song later = without_bars(toy_song(3), 2);
  CHECK(same_notes(later.tracks[bass_track].notes, line(1, 40)));
  CHECK(same_notes(later.tracks[4].notes, line(1, 61)));
}

TEST_CASE("one harmony is chosen at random, preferring those with notes", "[examples][groove]") {
  const Song song = toy_song(4);
  const double first = share([&](PortableRandom& random) {
    const Song groove = choose_harmony(song, random);
    CHECK(groove.tracks[harmony_track].notes.size() == 4);
    CHECK(groove.tracks[bass_track].notes.size() == 4);
    return groove.tracks[harmony_track].program == 1;
  });
  CHECK(first == Approx(0.5).margin(0.04));  // five standard deviations
  Song silent = song;
  for (size_t i = harmony_track; i < silent.tracks.size(); ++i) silent.tracks[i].notes.clear();
  PortableRandom random(1);
  CHECK(choose_harmony(silent, random).tracks[harmony_track].notes.empty());
  silent.tracks.resize(harmony_track);
  CHECK(choose_harmony(silent, random).tracks[harmony_track].notes.empty());
}

TEST_CASE("skip_bars shortens a quarter of the long grooves", "[examples][groove]") {
  const auto skipped = [](const Song& groove, PortableRandom& random) {
    return bars_of(groove) - bars_of(skip_bars(groove, random));
  };
  for (const auto& [bars, most] : std::map<int, int>{{7, 0}, {8, 4}, {15, 4}, {16, 8}, {200, 64}}) {
    Song groove = empty_groove();
    groove.tracks[0].notes = line(bars, 40);
    std::map<int, int> counts;
    const double any = share([&, n = bars](PortableRandom& random) {
      const int by = skipped(groove, random);
      CHECK((by % 4 == 0 && by <= n / 2));
      ++counts[by];
      return by > 0;
    });
    CHECK(any == Approx(most == 0 ? 0 : 0.25).margin(0.035));
    CHECK(counts.rbegin()->first == most);
    CHECK(int(counts.size()) == 1 + most / 4);  // all multiples of four occur
  }
}

TEST_CASE("drop_tracks removes tracks, but never all", "[examples][groove]") {
  const Song groove = with_harmony(toy_song(2), 0);
  for (size_t track = 0; track < 3; ++track) {
    const double silent = share([&](PortableRandom& random) {
      const Song fewer = drop_tracks(groove, random);
      CHECK(end_of(fewer) > 0);
      return fewer.tracks[track].notes.empty();
    });
    CHECK(silent == Approx(0.1 * 2 / 3).margin(0.02));
  }
  Song one = groove;
  one.tracks[1].notes.clear();
  one.tracks[2].notes.clear();
  CHECK(share([&](PortableRandom& r) { return end_of(drop_tracks(one, r)) > 0; }) == 1);
  CHECK(share([&](PortableRandom& r) { return end_of(drop_tracks(empty_groove(), r)) == 0; }) == 1);
}

TEST_CASE("bass and harmony are transposed, and pitches stay in range", "[examples][groove]") {
  Song groove = empty_groove();
  for (Track& track : groove.tracks) track.notes = {{0, 1, 2, 80}, {0, 1, 60, 80}, {0, 1, 125, 80}};
  std::map<int, int> counts;
  share([&](PortableRandom& random) {
    const Song moved = transpose(groove, random);
    const int by = moved.tracks[0].notes[1].pitch - 60;
    ++counts[by];
    CHECK(moved.tracks[0].notes[0].pitch == (by < -2 ? 2 + by + 12 : 2 + by));
    CHECK(moved.tracks[0].notes[2].pitch == (by > 2 ? 125 + by - 12 : 125 + by));
    CHECK(same_notes(moved.tracks[1].notes, groove.tracks[1].notes));
    CHECK(same_notes(moved.tracks[2].notes, moved.tracks[0].notes));
    return true;
  });
  CHECK(counts.size() == 12);
  CHECK(counts.begin()->first == -5);
  CHECK(counts.rbegin()->first == 6);
  for (const auto& [by, count] : counts) CHECK(count == Approx(4000 / 12.0).margin(90));
  CHECK(error_of<std::invalid_argument>([&] { transposed(groove, 13); }) ==
        "cannot transpose by 13 semitones; expected -12 to 12");
}

TEST_CASE("sequences have start and end tokens and are cut to a length", "[examples][groove]") {
  const Song groove = with_harmony(toy_song(2), 0);
  const std::vector<int64_t> tokens = to_tokens(groove);
  const auto n = int64_t(tokens.size());
  const GrooveSequence whole = groove_sequence(groove, n + 2);
  CHECK(int64_t(whole.size()) == n + 2);
  CHECK(whole.front() == groove_start);
  CHECK(whole.back() == groove_end);
  CHECK(groove_sequence(groove, 10'000) == whole);
  for (const int64_t length : {int64_t{2}, int64_t{5}, n + 1})
    CHECK(groove_sequence(groove, length) == GrooveSequence(whole.begin(), whole.begin() + length));
  CHECK(groove_sequence(empty_groove(), 9) == GrooveSequence{groove_start, groove_end});
}

TEST_CASE("targets of batches include the end but not the padding", "[examples][groove]") {
  const std::vector<GrooveSequence> sequences{{793, 5, 6, 792}, {793, 7}, {793, 792}};
  const stretto::nn::Batch b = groove_batch(sequences, false);
  using Numbers = std::vector<int64_t>;
  CHECK(b.inputs.shape() == stretto::Shape{3, 3});
  CHECK(b.inputs.to_vector<int64_t>() == Numbers{793, 5, 6, 793, 7, 792, 793, 792, 792});
  CHECK(b.targets.to_vector<int64_t>() == Numbers{5, 6, 792, 7, -100, -100, 792, -100, -100});
  CHECK(groove_batch(sequences, true).targets.to_vector<int64_t>() ==
        Numbers{5, 6, -100, 7, -100, -100, -100, -100, -100});
}

TEST_CASE("held-out songs are evenly spaced", "[examples][groove]") {
  const auto split = [](int songs, double share) {
    std::vector<Song> all;
    for (int i = 0; i < songs; ++i) {
      all.push_back(empty_groove());
      all.back().tracks[0].name = std::to_string(i);
    }
    const GrooveSplit s = split_grooves(std::move(all), share, "folder");
    CHECK(int(s.train.size() + s.valid.size()) == songs);
    std::string held;
    for (const Song& song : s.valid) held += song.tracks[0].name + " ";
    return held;
  };
  CHECK(split(20, 0.1) == "9 19 ");
  CHECK(split(9, 0.3) == "3 6 ");
  CHECK(split(3, 0.01) == "2 ");
  CHECK(split(3, 0.99) == "1 2 ");
  CHECK(split(2, 0.5) == "1 ");
  CHECK(error_of<UsageError>([&] { split(1, 0.5); }) ==
        "folder: needs at least two songs with bass, drums and harmony; it has 1");
}

TEST_CASE("training sequences depend only on seed and step", "[examples][groove]") {
  const std::vector<Song> songs = generate_grooves(1, 0, 5);
  GrooveSettings settings;
  settings.length = 100;
  const auto batch = training_grooves(songs, settings, 3);
  CHECK(batch.size() == 8);
  CHECK(batch == training_grooves(songs, settings, 3));
  CHECK(batch != training_grooves(songs, settings, 4));
  settings.seed = 2;
  CHECK(batch != training_grooves(songs, settings, 3));
  settings.augment = false;
  const auto plain = validation_grooves(songs, 100);
  std::set<GrooveSequence> seen;
  for (int64_t step = 0; step < 20; ++step)
    for (const GrooveSequence& sequence : training_grooves(songs, settings, step))
      seen.insert(sequence);
  CHECK(seen == std::set<GrooveSequence>(plain.begin(), plain.end()));
}

TEST_CASE("the n-gram baseline of grooves follows its formula", "[examples][groove]") {
  GrooveSettings settings;
  settings.augment = false;
  const std::vector<Song> songs{toy_song(1)};
  // Start, three note-ons, time shifts between the note-offs, end. The start is never predicted.
  const GrooveSequence sequence = groove_sequence(with_fullest_harmony(songs[0]), 100);
  const double n = double(sequence.size()), shifts = 4;  // (2, 0), (1, 11) and twice (0, 11)
  CHECK(n == 2 + 6 + shifts);
  const double once = std::log(2 / (n + 794)), twice = std::log(3 / (n + 794));
  const CountingLoss loss = counted_loss(songs, {sequence}, settings);
  CHECK(loss.unigram == Approx(-((n - 3) * once + 2 * twice) / (n - 1)));
  CHECK(loss.bigram < loss.unigram / 5);
  // Without the end there is one token less to predict.
  settings.published_eos = true;
  CHECK(
      counted_loss(songs, {sequence}, settings).unigram ==
      Approx(-((n - 4) * std::log(2 / (n - 1 + 794)) + 2 * std::log(3 / (n - 1 + 794))) / (n - 2)));
  // With augmentation, transposed songs are counted, too.
  settings.augment = true;
  const GrooveSequence moved = groove_sequence(transposed(with_harmony(songs[0], 0), 4), 100);
  const double known = counted_loss(songs, {moved}, settings).bigram;
  settings.augment = false;
  CHECK(known < counted_loss(songs, {moved}, settings).bigram);
}

TEST_CASE("n-gram counts do not cross the borders of sequences", "[examples]") {
  TokenCounts counts(3);
  counts.add({0, 1});
  counts.add({2, 1});
  const CountingLoss loss = counts.loss({{2, 1}, {0}, {1, 2}});
  const double p1 = 3.0 / 7, p2 = 2.0 / 7;
  CHECK(loss.unigram == Approx(-(std::log(p1) + std::log(p2)) / 2));
  CHECK(loss.bigram ==
        Approx(-(std::log((1 + p1) / 2) + std::log(p2)) / 2));  // 1 was never followed by a token
  CHECK(std::isnan(counts.loss(std::vector<std::vector<int64_t>>{{0}}).unigram));
}
