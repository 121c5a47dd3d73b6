#include "examples/chorales/chorale.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/chorales/baselines.h"
#include "examples/chorales/chorale_song.h"
#include "examples/chorales/harmony.h"
#include "examples/common/error.h"
#include "music/midi_reader.h"
#include "music/midi_writer.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using stretto::testing::data_path;

const std::string kGood = "[[[60, 55, 52, 48]]]";

std::string document(const std::string& train) {
  return "{\"train\": " + train + ", \"valid\": " + kGood + ", \"test\": " + kGood + "}";
}

/// Returns the error of load_chorales() for a file with `text`, without the path and ": ".
std::string defect_of(const std::string& text) {
  const TempDir folder;
  const std::string path = folder.file("chorales.json");
  write_file(path, text);
  const std::string message = error_of<UsageError>([&] { load_chorales(path); });
  CHECK(message.find('\n') == std::string::npos);
  if (message.rfind(path + ": ", 0) != 0) return "(no file name) " + message;
  return message.substr(path.size() + 2);
}

bool same(const std::vector<Chorale>& a, const std::vector<Chorale>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Chorale& x, const Chorale& y) { return x.steps == y.steps; });
}

bool same(const ChoraleSet& a, const ChoraleSet& b) {
  return same(a.train, b.train) && same(a.valid, b.valid) && same(a.test, b.test);
}

/// The fraction of steps of the two bars from bar `later` that are equal to the two bars
/// from bar `earlier`.
double likeness(const Chorale& chorale, std::size_t earlier, std::size_t later) {
  int equal = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    equal += chorale.steps[16 * earlier + i] == chorale.steps[16 * later + i] ? 1 : 0;
  }
  return equal / 32.0;
}

bool returns(const Chorale& chorale, double least) {
  const std::size_t bars = chorale.steps.size() / 16;
  for (std::size_t later = 2; later + 2 <= bars; later += 2) {
    for (std::size_t earlier = 0; earlier < later; earlier += 2) {
      if (likeness(chorale, earlier, later) >= least) return true;
    }
  }
  return false;
}

double rounded(double value) { return std::round(value * 1000) / 1000; }

TEST_CASE("chorales are loaded from JSON, with whole numbers as 60 or 60.0",
          "[examples][chorale]") {
  const TempDir folder;
  const std::string path = folder.file("chorales.json");
  write_file(path,
             "\xEF\xBB\xBF"
             R"({"note": "ignored", "test": [[[1, 2, 3, 4]]],
    "notes": [{"a": 1, "b": {"a": 2}}, {"a": 3}],
    "train": [[[73.0, 6.1e1, -1, 0], [127, 60, -1.0, 36]], [[60, 60, 60, 60]]],
    "valid": [[[5, 6, 7, 8]]]})");
  const ChoraleSet set = load_chorales(path);
  REQUIRE(set.train.size() == 2);
  CHECK(set.train[0].steps == std::vector<std::array<int, 4>>{{73, 61, -1, 0}, {127, 60, -1, 36}});
  CHECK(set.train[1].steps.size() == 1);
  CHECK(set.valid[0].steps[0] == std::array<int, 4>{5, 6, 7, 8});
  CHECK(set.test[0].steps[0] == std::array<int, 4>{1, 2, 3, 4});
}

TEST_CASE("every defect of a chorale file is reported with its position", "[examples][chorale]") {
  const std::string expected_pitch =
      "; expected a MIDI note number from 0 to 127, or -1 for silence";
  CHECK(defect_of("") == "is empty");
  CHECK(defect_of(" \n\t") == "is empty");
  CHECK(defect_of("[1]") ==
        "is not a JSON object (got array); expected one with \"train\", \"valid\" and \"test\"");
  CHECK(defect_of("{\"train\": [[[60, 5") ==
        "the JSON text ends too early, after byte 18; the file may be truncated");
  CHECK(defect_of("{\"train\":\n [[[60, NaN, 4, 5]]]}") ==
        "malformed JSON at byte 19 (line 2), near \"[[60, NaN, 4, 5]\"");
  CHECK(defect_of("{} {}") == "malformed JSON at byte 4 (line 1), near \"{} {}\"");
  CHECK(defect_of("{}" + std::string("\0{}", 3)) ==
        "malformed JSON at byte 3 (line 1), near \"{}?{}\"");
  CHECK(defect_of(document(kGood) + '\0') ==
        "malformed JSON at byte 93 (line 1), near \"48]]]}?\"");
  CHECK(defect_of("\x1F\x8B\x08{}") == "is gzip-compressed; expected a JSON file of chorales");
  CHECK(defect_of("\x80\x02}q\x01.") == "is a Python pickle; expected a JSON file of chorales");
  CHECK(defect_of("{\"train\": " + kGood + ", \"train\": " + kGood + "}") ==
        "has the key \"train\" twice");
  CHECK(defect_of("{\"note\": {\"a\": {\"b\": 1}, \"b\": 2, \"a\": 3}}") ==
        "has the key \"a\" twice");
  CHECK(defect_of(document("[[[1e999, 5, 5, 5]]]")) == "the JSON text has a number out of range");
  CHECK(defect_of("{\"train\": " + kGood + "}") ==
        "has no key \"valid\"; expected \"train\", \"valid\" and \"test\"");
  CHECK(defect_of(document("{}")) == "\"train\" is not a list of chorales (got object)");
  CHECK(defect_of(document("[]")) == "\"train\" has no chorales");
  CHECK(defect_of(document("[7]")) == "train[0] is not a list of steps (got number)");
  CHECK(defect_of(document("[[[1, 2, 3, 4]], []]")) == "train[1] has no steps");
  CHECK(defect_of(document("[[[1, 2, 3, 4], null]]")) ==
        "train[0] step 1 is not a list (got null); expected 4 (soprano, alto, tenor, bass; -1 = "
        "silent)");
  CHECK(defect_of(document("[[[1, 2, 3, 4], [1, 2, 3]]]")) ==
        "train[0] step 1 has 3 numbers; expected 4 (soprano, alto, tenor, bass; -1 = silent)");
  CHECK(defect_of(document("[[[1, 2, 3, 4, 5]]]")) ==
        "train[0] step 0 has 5 numbers; expected 4 (soprano, alto, tenor, bass; -1 = silent)");
  CHECK(defect_of(document("[[[1, 2.5, 3, 4]]]")) ==
        "train[0] step 0 number 2 is 2.5, not a whole number" + expected_pitch);
  CHECK(defect_of(document("[[[1, 2, \"3\", 4]]]")) ==
        "train[0] step 0 number 3 is not a number (got string)" + expected_pitch);
  CHECK(defect_of(document("[[[1, 2, 3, 128]]]")) ==
        "train[0] step 0 number 4 is 128" + expected_pitch);
  CHECK(defect_of(document("[[[-2, 2, 3, 4]]]")) ==
        "train[0] step 0 number 1 is -2" + expected_pitch);
  CHECK(defect_of(document("[[[18446744073709551615, 2, 3, 4]]]")) ==
        "train[0] step 0 number 1 is 18446744073709551615" + expected_pitch);
}

TEST_CASE("a chorale path that is not a readable file is rejected", "[examples][chorale]") {
  const TempDir folder;
  const std::string missing = folder.file("missing.json");
  CHECK(error_of<UsageError>([&] { load_chorales(missing); }) == missing + ": no such file");
  CHECK(error_of<UsageError>([&] { load_chorales(folder.str()); }) ==
        folder.str() + ": is a directory; expected a JSON file of chorales");
  CHECK(error_of<UsageError>([] { load_chorales("/dev/zero"); }) ==
        "/dev/zero: is not a regular file");
}

TEST_CASE("deeply nested JSON does not exhaust the stack", "[examples][chorale]") {
  const std::size_t depth = 1000000;
  CHECK(defect_of(std::string(depth, '[')) ==
        "the JSON text ends too early, after byte 1000000; the file may be truncated");
  CHECK(defect_of(document(std::string(depth, '[') + std::string(depth, ']'))) ==
        "train[0] step 0 has 1 number; expected 4 (soprano, alto, tenor, bass; -1 = silent)");
}

TEST_CASE("saved chorales can be loaded again", "[examples][chorale]") {
  const TempDir folder;
  const std::string path = folder.file("set.json");
  const ChoraleSet set = generate_chorales(5, 3, 2, 1);
  write_file(path, "old");
  save_chorales(path, set);
  CHECK(same(load_chorales(path), set));
  CHECK(entries(folder.str()) == 1);

  CHECK(error_of<std::invalid_argument>([&] {
          save_chorales(path, {set.train, {}, set.test});
        }) == "cannot save chorales: valid is empty");
  ChoraleSet bad = set;
  bad.train[1].steps[0][2] = 200;
  CHECK(error_of<std::invalid_argument>([&] { save_chorales(path, bad); }) ==
        "cannot save chorales: train[1] has pitch 200");
  CHECK(same(load_chorales(path), set));
  CHECK(error_of<UsageError>([&] { save_chorales(folder.str(), set); }) ==
        "cannot write '" + folder.str() + "': Is a directory");
  const std::string nowhere = folder.file("no/set.json");
  CHECK(error_of<UsageError>([&] { save_chorales(nowhere, set); }) ==
        "[save] " + nowhere + ": cannot create " + nowhere + ".tmp: No such file or directory");
  CHECK(error_of<std::runtime_error>([&] { save_chorales("/dev/full", set); }) ==
        "cannot write '/dev/full': No space left on device");
}

TEST_CASE("saving follows a symbolic link", "[examples][chorale]") {
  const TempDir folder;
  write_file(folder.file("real.json"), "old");
  std::filesystem::create_symlink("real.json", folder.file("link.json"));
  save_chorales(folder.file("link.json"), generate_chorales(5, 1, 1, 1));
  CHECK(std::filesystem::is_symlink(folder.file("link.json")));
  CHECK(load_chorales(folder.file("real.json")).train.size() == 1);
}

TEST_CASE("generated chorales depend only on the seed", "[examples][generator]") {
  const ChoraleSet set = generate_chorales(7, 6, 3, 2);
  CHECK(set.train.size() == 6);
  CHECK(set.valid.size() == 3);
  CHECK(set.test.size() == 2);
  CHECK(same(set, generate_chorales(7, 6, 3, 2)));
  CHECK_FALSE(same(set, generate_chorales(8, 6, 3, 2)));

  const ChoraleSet fewer = generate_chorales(7, 2, 3, 0);
  CHECK(fewer.train[1].steps == set.train[1].steps);
  CHECK(same(fewer.valid, set.valid));
  CHECK(fewer.test.empty());
  CHECK(set.train[0].steps != set.valid[0].steps);
  CHECK_THROWS_AS(generate_chorales(7, -1, 1, 1), std::invalid_argument);

  // A hash of the data: if it changes, all published results on generated data change.
  std::uint64_t hash = 14695981039346656037U;
  for (const Chorale& chorale : set.train) {
    for (const auto& step : chorale.steps) {
      for (const int pitch : step)
        hash = (hash ^ static_cast<std::uint64_t>(pitch + 1)) * 1099511628211U;
    }
  }
  CHECK(hash == 15205183197541543941U);
}

TEST_CASE("generated chorales are music for four voices", "[examples][generator]") {
  const ChoraleSet set = generate_chorales(1);
  int usual_lengths = 0;
  int returning = 0;
  int exact = 0;
  int parallels = 0;
  int moves = 0;
  bool silence = false;
  bool in_range = true;
  bool in_order = true;
  for (const Chorale& chorale : set.train) {
    const std::size_t length = chorale.steps.size();
    REQUIRE(length >= 100);
    REQUIRE(length <= 400);
    REQUIRE(length % 4 == 0);
    usual_lengths += length >= 128 && length <= 256 ? 1 : 0;
    returning += returns(chorale, 0.75) ? 1 : 0;
    exact += returns(chorale, 1.0) ? 1 : 0;
    for (const auto& step : chorale.steps) {
      if (step[0] < 0) {
        silence = true;
        continue;
      }
      for (std::size_t voice = 0; voice < 4; ++voice) {
        in_range = in_range && step[voice] >= voice_ranges[voice].low &&
                   step[voice] <= voice_ranges[voice].high;
        in_order = in_order && (voice == 3 || step[voice] >= step[voice + 1]);
      }
    }
    for (std::size_t i = 0; i + 4 < length; i += 4) {
      const auto& from = chorale.steps[i];
      const auto& to = chorale.steps[i + 4];
      if (from[0] < 0 || to[0] < 0 || from[0] == to[0] || from[3] == to[3]) continue;
      const int interval = (from[0] - from[3]) % 12;
      ++moves;
      if ((interval == 0 || interval == 7) && (to[0] - to[3]) % 12 == interval) ++parallels;
    }
  }
  CHECK(in_range);
  CHECK(in_order);
  CHECK(silence);
  CHECK(usual_lengths >= 150);
  CHECK(returning >= 180);
  CHECK(exact >= 120);
  CHECK(moves > 3000);
  CHECK(parallels * 50 < moves);  // less than 2 %
}

TEST_CASE("generated chorales use many keys and can be predicted", "[examples][generator]") {
  const ChoraleSet set = generate_chorales(1);
  std::set<int> finals;
  for (const Chorale& chorale : set.train) finals.insert(chorale.steps.back()[3] % 12);
  CHECK(finals.size() == 12);
  const double unigram = unigram_loss(set.train, set.valid);
  const double voice = voice_unigram_loss(set.train, set.valid);
  const double bigram = voice_bigram_loss(set.train, set.valid);
  CHECK(unigram > voice + 0.3);
  CHECK(voice > bigram + 1.0);
  CHECK(bigram > 0.5);
}

TEST_CASE("scale degrees and pitches convert both ways", "[examples][generator]") {
  const Key d_minor{2, true};
  CHECK(scale_pitch(d_minor, 0) == 2);
  CHECK(scale_pitch(d_minor, 2) == 5);
  CHECK(scale_pitch(d_minor, 7) == 14);
  CHECK(scale_pitch(d_minor, -1) == 0);
  CHECK(scale_pitch(d_minor, -7) == -10);
  for (const Key& key : {d_minor, Key{0, false}, Key{11, false}}) {
    for (int degree = 0; degree < 70; ++degree) {
      REQUIRE(degree_of(key, scale_pitch(key, degree)) == degree);
    }
  }
  CHECK(degree_of(d_minor, 61) == degree_of(d_minor, 60));                    // C sharp counts as C
  CHECK(chord_tones(d_minor, {4, 0, true}) == std::vector<int>{9, 1, 4, 7});  // A7
  CHECK(chord_tones(Key{0, false}, {1, 1, false}) == std::vector<int>{2, 5, 9});
}

TEST_CASE("baselines count with add-one smoothing", "[examples][baselines]") {
  // Three symbols: 60 four times, 62 three times, silence once.
  const std::vector<Chorale> train = {{{{60, 60, 62, -1}, {60, 62, 62, 60}}}};
  const std::vector<Chorale> valid = {{{{60, 60, 62, 60}}}};
  CHECK(std::abs(unigram_loss(train, valid) - -(3 * std::log(5.0 / 11) + std::log(4.0 / 11)) / 4) <
        1e-12);
  CHECK(std::abs(voice_unigram_loss(train, valid) -
                 -(std::log(3.0 / 5) + std::log(2.0 / 5) + std::log(3.0 / 5) + std::log(2.0 / 5)) /
                     4) < 1e-12);
  // Alto, tenor and bass have three symbols, too: 60 twice, 62 three times, silence once.
  CHECK(std::abs(unigram_loss(train, valid, 1) - -(2 * std::log(3.0 / 9) + std::log(4.0 / 9)) / 3) <
        1e-12);
  CHECK(std::abs(voice_unigram_loss(train, valid, 1) -
                 -(std::log(2.0 / 5) + std::log(3.0 / 5) + std::log(2.0 / 5)) / 3) < 1e-12);
  // The first step uses the unigrams of the voice, the second one the bigrams after the same pitch.
  const std::vector<Chorale> two_steps = {{{{60, 60, 62, -1}, {60, 60, 60, 60}}}};
  const double first = std::log(3.0 / 5) + 2 * std::log(2.0 / 5) + std::log(3.0 / 5);
  const double second =
      std::log(2.0 / 4) + std::log(1.0 / 4) + std::log(1.0 / 4) + std::log(2.0 / 4);
  CHECK(std::abs(voice_bigram_loss(train, two_steps) - -(first + second) / 8) < 1e-12);
  const double lower = 2 * std::log(2.0 / 5) + std::log(3.0 / 5);
  CHECK(std::abs(voice_bigram_loss(train, two_steps, 1) -
                 -(lower + 2 * std::log(1.0 / 4) + std::log(2.0 / 4)) / 6) < 1e-12);
  // An unseen symbol has count 0 + 1.
  const std::vector<Chorale> unseen = {{{{70, 70, 70, 70}}}};
  CHECK(std::abs(unigram_loss(train, unseen) - -std::log(1.0 / 11)) < 1e-12);
  CHECK_THROWS_AS(unigram_loss({}, valid), std::invalid_argument);
  CHECK_THROWS_AS(voice_bigram_loss(train, {}), std::invalid_argument);
}

TEST_CASE("baselines on the real chorales agree with published values",
          "[examples][baselines][data]") {
  const std::string path = data_path("jsb/Jsb16thSeparated.json");
  STRETTO_NEEDS_DATA(path);
  const ChoraleSet set = load_chorales(path);
  CHECK(set.train.size() == 229);
  CHECK(set.valid.size() == 76);
  CHECK(set.test.size() == 77);
  std::set<int> symbols;
  for (const Chorale& chorale : set.train) {
    for (const auto& step : chorale.steps) symbols.insert(step.begin(), step.end());
  }
  CHECK(symbols.size() == 47);
  CHECK(rounded(voice_unigram_loss(set.train, set.valid)) == 2.611);
  CHECK(rounded(voice_unigram_loss(set.train, set.test)) == 2.639);
  CHECK(rounded(voice_bigram_loss(set.train, set.valid)) == 0.944);
  CHECK(rounded(voice_bigram_loss(set.train, set.test)) == 0.993);
}

TEST_CASE("a chorale becomes four tracks of merged notes", "[music]") {
  const Chorale chorale{{{72, 67, 64, -1}, {72, 67, 62, -1}, {74, -1, 62, 48}, {74, 67, 62, 48}}};
  const stretto::music::Song song = to_song(chorale);
  REQUIRE(song.tracks.size() == 4);
  CHECK(song.tracks[0].name == "Soprano");
  CHECK(song.tracks[3].name == "Bass");
  const auto notes = [&](std::size_t voice) {
    std::string text;
    for (const stretto::music::Note& n : song.tracks[voice].notes) {
      text += std::to_string(n.pitch) + "@" + std::to_string(n.start) + "+" +
              std::to_string(n.duration) + " ";
    }
    return text;
  };
  CHECK(notes(0) == "72@0+240 74@240+240 ");
  CHECK(notes(1) == "67@0+240 67@360+120 ");
  CHECK(notes(2) == "64@0+120 62@120+360 ");
  CHECK(notes(3) == "48@240+240 ");
  CHECK(stretto::music::parse_midi(stretto::music::midi_bytes(song), "x").notes.size() == 7);
  CHECK(to_song({}).tracks.size() == 4);
  CHECK_THROWS_AS(stretto::music::midi_bytes(to_song({{{200, 60, 60, 60}}})), stretto::Error);
}

}  // namespace
