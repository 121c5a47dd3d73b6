// Libraries of piano music: reading, skipped files, splits, crops and windows.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "examples/common/error.h"
#include "examples/piano/crops.h"
#include "music/performance.h"
#include "music/remi.h"
#include "nn/data/packed_batches.h"
#include "tests/examples/temp_dir.h"
#include "tests/music/songs.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT
using namespace stretto::music::testing;     // NOLINT
using stretto::Tensor;

const Tokenizer& remi() {
  static const auto tokens = tokenizer("remi");
  return *tokens;
}
const Tokenizer& performance() {
  static const auto tokens = tokenizer("performance", {.pedal = true});
  return *tokens;
}

/// Writes songs 0 … n − 1; song i has pitch 40 + i.
TempDir& fill(TempDir& folder, int n) {
  std::filesystem::create_directories(folder.file("midi/more"));
  for (int i = 0; i < n; ++i)
    write_midi(folder.file(std::string("midi/") + (i % 2 ? "more/" : "") + std::to_string(i) +
                           (i % 3 == 0 ? ".MID" : ".midi")),
               piano_song({{0, 480, 40 + i, 64}}));
  return folder;
}

std::string names(const std::vector<PianoPiece>& pieces) {
  std::string all;
  for (const PianoPiece& piece : pieces) all += (all.empty() ? "" : " ") + piece.name;
  return all;
}

std::vector<std::vector<int64_t>> rows(const Tensor& x) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t i = 0; i < x.size(0); ++i) all.push_back(x[i].to_vector<int64_t>());
  return all;
}

}  // namespace

TEST_CASE("a library reports damaged files", "[examples][piano]") {
  TempDir folder;
  const std::string data = fill(folder, 9).file("midi");
  const auto cut = [&](const std::string& name) {
    const std::string bytes = read_file(data + "/" + name);
    write_file(data + "/" + name, bytes.substr(0, bytes.size() - 2));
  };
  CHECK(read_library({.folder = data, .every = 3}, remi()).damaged.text().empty());
  cut("more/3.MID");
  const PianoLibrary one = read_library({.folder = data, .every = 3}, remi());
  CHECK(one.damaged.files() == 1);
  CHECK(one.skipped.empty());
  CHECK_THAT(one.damaged.text(), Containing("1 file is damaged and was read as far as possible: "
                                            "more/3.MID (byte "));
  for (const char* name : {"0.MID", "2.midi", "more/1.midi"}) cut(name);
  const std::string error_for = read_library({.folder = data, .every = 3}, remi()).damaged.text();
  CHECK_THAT(error_for,
             Containing("4 files are damaged and were read as far as possible: 0.MID (byte "));
  CHECK_THAT(error_for, Containing("), 2.midi, more/1.midi …"));
}

TEST_CASE("a library names meters that have no token", "[examples][piano]") {
  const TempDir folder;
  const std::string data = folder.file("midi");
  std::filesystem::create_directory(data);
  for (const int beats : {3, 4, 9})
    stretto::music::write_midi(
        data + "/" + std::to_string(beats) + ".mid",
        {.tracks = {{"", 0, 0, {{0, 480, 60, 60}}}}, .meters = {{0, beats, 8}}});
  const auto meters = stretto::music::tokenizer("remi-multitrack", {.time_signatures = true});
  const PianoLibrary all = read_library({.folder = data, .every = 2}, *meters);
  REQUIRE(all.warnings.size() == 2);
  CHECK_THAT(all.warnings[0], Containing("4.mid: ") && Containing("4/8 at tick 0 has no token"));
  CHECK_THAT(all.warnings[1], Containing("9.mid: ") && Containing("9/8 at tick 0 has no token"));
  CHECK(read_library({.folder = data, .every = 2}, remi()).warnings.empty());
}

TEST_CASE("a library has every MIDI file below a directory, sorted by name", "[examples][piano]") {
  TempDir folder;
  const std::string data = fill(folder, 7).file("midi");
  write_file(folder.file("midi/notes.txt"), "no music");
  const PianoLibrary all = read_library({.folder = data, .every = 3}, remi());
  CHECK(names(all.train) == "0.MID 6.MID more/5.midi");
  CHECK(names(all.test) == "2.midi more/1.midi");
  CHECK(names(all.valid) == "4.midi more/3.MID");
  CHECK(all.skipped.empty());
  const auto pitch = [](const PianoPiece& piece) {
    return remi().pitch(piece.tokens.read().at(3));
  };
  CHECK(pitch(all.train[2]) == 45);
  CHECK(pitch(all.valid[1]) == 43);

  const PianoLibrary halves = read_library({.folder = data, .every = 2}, remi());
  CHECK(names(halves.train) == "0.MID 4.midi more/1.midi more/5.midi");
  CHECK(halves.valid.size() == 3);
  CHECK(halves.test.empty());
}

TEST_CASE("a table defines the splits of a library", "[examples][piano]") {
  TempDir folder;
  const std::string data = fill(folder, 4).file("midi"), table = folder.file("split.tsv");
  write_file(table,
             "seconds\tfile\tsplit\r\n1\t0.MID\ttest\r\n2\tmidi/2.midi\tvalid\r\n"
             "2\tmore/1.midi\ttrain\r\n3\tabsent.mid\ttrain\r\n");
  for (const std::string& from : {data, data + "/", folder.file("midi/../midi")}) {
    const PianoLibrary all = read_library({.folder = from, .split = table}, remi());
    CHECK(names(all.train) == "more/1.midi");
    CHECK(names(all.valid) == "2.midi");
    CHECK(names(all.test) == "0.MID");
    CHECK(all.left_out == 1);
  }
  const auto defect = [&](const std::string& text) {
    write_file(table, text);
    return error_of<UsageError>([&] { read_library({.folder = data, .split = table}, remi()); });
  };
  CHECK(defect("file\tpart\n") == table + ": its first line has no column \"split\"");
  CHECK(defect("file\tsplit\nx.mid\n") ==
        table + ", line 2: has 1 columns; its first line has more");
  CHECK(defect("file\tsplit\nx.mid\tdev\n") ==
        table + ", line 2: split \"dev\"; must be train, valid or test");
  CHECK(defect("file\tsplit\n\n0.MID\tvalid\n") ==
        table + ", line 2: has 0 columns; its first line has more");
  CHECK(defect("") == table + ": is empty");
  CHECK(defect("midi_filename,split\nx.mid,train\n") ==
        table +
            ": its first line has no column \"file\"; it looks like CSV, with commas in place "
            "of tabs");
  CHECK(defect("\x1F\x8B\x08") == table + ": is gzip-compressed; expected a tab-separated table");
  CHECK(defect("file\tsplit\n0.MID\ttrain\n0.MID\ttest\n") ==
        table + ", line 3: file \"0.MID\" is in another split on an earlier line");
  CHECK(defect("file\tsplit\n0.MID\tvalid\n") == "--data " + data +
                                                     ": none of 4 MIDI files is left for "
                                                     "training; 3 are not in " +
                                                     table);
}

TEST_CASE("MAESTRO's table defines the splits of a library", "[examples][piano]") {
  TempDir folder;
  const std::string data = fill(folder, 4).file("midi"), table = data + "/maestro-v3.0.0.csv";
  const std::string head = "canonical_title,split,midi_filename,duration\n",
                    rest =
                        "\"A \"\"B\"\", in C\",test,0.MID,1\r\n,validation,2.midi,2\n\"\",train,"
                        "\"more/1.midi\",3\n";
  const auto check_splits = [&](const PianoLibrary& all) {
    CHECK(names(all.train) == "more/1.midi");
    CHECK(names(all.valid) == "2.midi");
    CHECK(names(all.test) == "0.MID");
    CHECK(all.left_out == 1);
  };
  write_file(table, head + rest);
  check_splits(read_library({.folder = data}, remi()));
  check_splits(read_library({.folder = data, .split = table}, remi()));
  write_file(data + "/maestro-v2.0.0.csv", head + rest);
  CHECK(error_of<UsageError>([&] { read_library({.folder = data}, remi()); }) ==
        "--data " + data +
            ": has maestro-v2.0.0.csv and maestro-v3.0.0.csv; select one with --split");
  check_splits(read_library({.folder = data, .split = table}, remi()));
  std::filesystem::remove(data + "/maestro-v2.0.0.csv");

  const auto defect = [&](const std::string& text) {
    write_file(table, text);
    return error_of<UsageError>([&] { read_library({.folder = data}, remi()); });
  };
  CHECK(defect("") == table + ": is empty");
  CHECK(defect("file,split\n") == table + ": its first line has no column \"midi_filename\"");
  CHECK(defect(head + rest + "x,train\n") ==
        table + ", line 5: has 2 columns; its first line has more");
  CHECK(defect(head + "x,dev,0.MID,1\n") ==
        table + ", line 2: split \"dev\"; must be train, validation or test");
  CHECK(defect(head + "\"x,train,0.MID,1\n") == table + ", line 2: a quoted field does not end");
  CHECK(defect(head + "\"x\"y,train,0.MID,1\n") ==
        table + ", line 2: text follows a closing quote");
  CHECK(defect(head + rest + "x,train,a/b.mid,1\nx,test,c.mid,1\n") ==
        table + ": 2 of its 5 files are not in " + data + ", the first: a/b.mid");
}

TEST_CASE("a byte order mark and empty last lines of a table are ignored", "[examples][piano]") {
  TempDir folder;
  const std::string data = fill(folder, 4).file("midi"), table = folder.file("split.tsv");
  for (const char* end : {"\n", "\r\n"}) {
    std::string text = "\xEF\xBB\xBF";
    for (const char* line :
         {"file\tsplit", "0.MID\ttest", "2.midi\tvalid", "more/1.midi\ttrain", "", ""})
      text += std::string(line) + end;
    write_file(table, text);
    const PianoLibrary all = read_library({.folder = data, .split = table}, remi());
    CHECK(names(all.train) == "more/1.midi");
    CHECK(names(all.valid) == "2.midi");
    CHECK(names(all.test) == "0.MID");
  }
}

TEST_CASE("the length of a piece ends with its last note, whatever follows", "[examples][piano]") {
  const auto error_for = [](const MidiFile& file) {
    return error_of<stretto::Error>([&] { remi().check_file(file, "x"); });
  };
  const Song song = piano_song({{0, 480, 60, 60}});
  for (const int late : {480 * 50'000, (1 << 28) - 1}) {
    Song tempo = song;
    tempo.tempos = {{late, 60}};
    CHECK(error_for(parsed(tempo)) == "(nothing thrown)");
    Song drums = song;
    drums.tracks.push_back({"Drums", drum_channel, 0, {{late - 100, 100, 40, 9}}});
    CHECK(error_for(parsed(drums)) == "(nothing thrown)");
    const Tokenizer& both = performance();
    CHECK(both.encode(parsed(tempo)) == both.encode(parsed(song)));
    CHECK(remi().encode(parsed(drums)) == remi().encode(parsed(song)));
    CHECK(error_for(parsed(piano_song({{0, late, 60, 60}}))) ==
          "[tokenizer] x: lasts more than six hours or 40000 beats");
    CHECK(error_for(parsed(piano_song({{late - 1, 1, 60, 60}}))) ==
          "[tokenizer] x: lasts more than six hours or 40000 beats");
  }
  Song slow =
      piano_song({{480 * 6000, 1, 60, 60}});  // at ten beats per minute, six hours are 3600 beats
  slow.quarters_per_minute = 10;
  CHECK(error_for(parsed(slow)) == "[tokenizer] x: lasts more than six hours or 40000 beats");
}

TEST_CASE("a library skips files that are not piano pieces and reports the reason",
          "[examples][piano]") {
  TempDir folder;
  const std::string data = fill(folder, 3).file("midi");
  write_file(data + "/bad.mid", "MThd");
  write_midi(data + "/drums.mid", {480, 120, {{"", 9, 0, {{0, 1, 40, 9}}}}, {}});
  write_midi(data + "/empty.mid", piano_song({}));
  write_midi(data + "/long.mid", piano_song({{480 * 40'001, 1, 60, 60}}));
  const PianoLibrary all = read_library({.folder = data, .every = 2}, remi());
  REQUIRE(all.skipped.size() == 4);
  CHECK_THAT(all.skipped[0], Containing(data + "/bad.mid: byte "));
  CHECK(all.skipped[1] == data + "/drums.mid: has no notes except drums");
  CHECK(all.skipped[2] == data + "/empty.mid: has no notes");
  CHECK(all.skipped[3] == data + "/long.mid: lasts more than six hours or 40000 beats");

  MidiFile songs = parsed(piano_song({{0, 1, 60, 60}}));
  songs.format = 2;
  CHECK(error_of<stretto::Error>([&] { remi().check_file(songs, "x"); }) ==
        "[tokenizer] x: is of format 2, whose tracks are separate pieces");

  const auto refusal = [](const std::string& from) {
    return error_of<UsageError>([&] { read_library({.folder = from}, remi()); });
  };
  CHECK(refusal(folder.file("none")) == "--data " + folder.file("none") + ": is not a folder");
  std::filesystem::create_directory(folder.file("no"));
  CHECK(refusal(folder.file("no")) ==
        "--data " + folder.file("no") + ": has no MIDI files (*.mid, *.midi, *.kar, *.rmi, *.smf)");
  write_file(folder.file("no/a.mid"), "");
  CHECK_THAT(refusal(folder.file("no")),
             Containing("none of 1 MIDI files is left for training; 1 cannot be used, the first: " +
                        folder.file("no/a.mid") + ": "));
  CHECK_THAT(refusal(data),
             Containing("none of 7 MIDI files is left for validation; 4 cannot be") &&
                 Containing("; reduce --every"));
}

TEST_CASE("generated libraries depend only on the seed", "[examples][piano]") {
  for (const Tokenizer* tokens : {&remi(), &performance()}) {
    const PianoLibrary library = generated_library(3, *tokens);
    CHECK(library.train.size() == 200);
    CHECK(library.test.size() == 25);
    CHECK(fingerprint(library.train) == fingerprint(generated_library(3, *tokens).train));
    CHECK(fingerprint(library.train) != fingerprint(generated_library(4, *tokens).train));
    CHECK(fingerprint(library.train) != fingerprint(library.valid));
    // Pieces are the same after writing and reading MIDI.
    for (const PianoPiece& piece : library.test)
      CHECK(tokens->encode(parsed(tokens->decode(piece.tokens.read()))) == piece.tokens.read());
  }
}

TEST_CASE("crops of REMI begin with Bar and stay in range", "[examples][piano]") {
  const PianoLibrary library = generated_library(1, remi());
  const PianoCropOptions options{.batch = 6, .length = 200, .transpose = 24};
  bool moved = false;
  for (int64_t step = 0; step < 20; ++step) {
    const stretto::nn::Batch batch = training_batch(library.train, remi(), options, 7, step);
    CHECK(rows(batch.inputs) ==
          rows(training_batch(library.train, remi(), options, 7, step).inputs));
    CHECK(rows(batch.inputs) !=
          rows(training_batch(library.train, remi(), options, 7, step + 1).inputs));
    CHECK(rows(batch.inputs) !=
          rows(training_batch(library.train, remi(), options, 8, step).inputs));
    for (int64_t b = 0; b < options.batch; ++b) {
      const auto inputs = rows(batch.inputs)[size_t(b)], targets = rows(batch.targets)[size_t(b)];
      CHECK(inputs.front() == remi_id(RemiKind::bar));
      for (size_t i = 0; i + 1 < inputs.size(); ++i) {
        if (targets[i] != stretto::nn::ignore_index) CHECK(targets[i] == inputs[i + 1]);
        if (targets[i] == stretto::nn::ignore_index) CHECK(inputs[i + 1] == remi_pad);
        moved = moved || remi().pitch(int(inputs[i])) > 90;
      }
      CHECK(std::count(inputs.begin(), inputs.end(), remi_pad) == 0);
    }
  }
  CHECK(moved);  // untransposed chorales have no pitch above 90

  PianoCropOptions anywhere = options;
  anywhere.from_bar = false;
  int64_t within = 0;
  for (const auto& row : rows(training_batch(library.train, remi(), anywhere, 7, 0).inputs))
    within += row.front() != remi_id(RemiKind::bar);
  CHECK(within > 0);
}

TEST_CASE("crops of short pieces are padded, and padding is not scored", "[examples][piano]") {
  const std::vector<PianoPiece> pieces{{"a", std::vector<int64_t>{0, 1, 200, 260, 160, 0, 150}}};
  const stretto::nn::Batch batch =
      training_batch(pieces, remi(), {.batch = 1, .length = 9, .transpose = 0}, 1, 0);
  CHECK(rows(batch.inputs)[0] ==
        std::vector<int64_t>{0, 1, 200, 260, 160, 0, 150, remi_pad, remi_pad});
  CHECK(rows(batch.targets)[0] ==
        std::vector<int64_t>{1, 200, 260, 160, 0, 150, stretto::nn::ignore_index,
                             stretto::nn::ignore_index, stretto::nn::ignore_index});
}

TEST_CASE("packed pieces are transposed one by one", "[examples][piano]") {
  const PianoLibrary library = generated_library(1, remi());
  std::vector<stretto::nn::TokenStream> pieces;
  for (const PianoPiece& piece : library.train) pieces.push_back(piece.tokens.slice(0, 60));
  const stretto::nn::PackedBatches packed(pieces, 4, 200, 1, remi_pad);
  const stretto::nn::Batch plain = packed(0);
  stretto::nn::Batch moved = packed(0), again = packed(0);
  transpose_packed(moved, remi(), 6, 3, 0);
  transpose_packed(again, remi(), 6, 3, 0);
  CHECK(rows(moved.inputs) == rows(again.inputs));
  const auto from = plain.inputs.to_vector<int64_t>(), to = moved.inputs.to_vector<int64_t>(),
             next = moved.targets.to_vector<int64_t>(),
             segments = plain.segments.to_vector<int64_t>();
  std::map<int64_t, std::set<int>> intervals;  // of each piece
  for (size_t i = 0; i < from.size(); ++i) {
    if (next[i] == stretto::nn::ignore_index) continue;
    if (i + 1 < from.size() && segments[i + 1] == segments[i] && (i + 1) % 200 != 0)
      CHECK(next[i] == to[i + 1]);
    const int pitch = remi().pitch(int(from[i]));
    if (pitch < 0) continue;
    intervals[int64_t(i) / 200 * 100 + segments[i]].insert(remi().pitch(int(to[i])) - pitch);
  }
  std::set<int> all;
  for (const auto& [piece, semitones] : intervals) {
    REQUIRE(semitones.size() == 1);
    CHECK(std::abs(*semitones.begin()) <= 6);
    all.insert(*semitones.begin());
  }
  CHECK(intervals.size() >= 12);
  CHECK(all.size() > 2);
}

TEST_CASE("crops of performances are transposed and stretched in time", "[examples][piano]") {
  const std::vector<PianoPiece> pieces{
      {"a", performance_tokens({{0, 100, 125, 62}, {300, 100, 2, 62}})}};
  std::vector<int> lows, thirds;
  for (int64_t step = 0; step < 60; ++step) {
    const stretto::nn::Batch batch = training_batch(
        pieces, performance(), {.batch = 1, .length = 11, .transpose = 3, .stretch = 5}, 1, step);
    const std::vector<int64_t> first = batch.inputs[0].to_vector<int64_t>();
    const std::vector<PianoNote> notes = performance_notes(first);
    REQUIRE(notes.size() == 2);
    CHECK(notes[0].pitch - notes[1].pitch == 123);
    lows.push_back(notes[1].pitch);
    thirds.push_back(int(notes[1].start));
  }
  for (std::vector<int>* all : {&lows, &thirds}) {
    std::sort(all->begin(), all->end());
    all->erase(std::unique(all->begin(), all->end()), all->end());
  }
  CHECK(lows == std::vector<int>{0, 1, 2, 3, 4});  // pitch 125 can move up by 2 only
  CHECK(thirds == std::vector<int>{285, 288, 291, 294, 297, 300, 303, 306, 309, 312, 315});
}

TEST_CASE("windows cover pieces in order and are evenly sampled", "[examples][piano]") {
  const PianoLibrary library = generated_library(1, remi());
  const std::vector<PianoWindow> all = windows(library.test, remi(), 100);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<int64_t> tokens = all[i].piece->tokens.read(all[i].start, 101);
    CHECK(tokens[0] == remi_id(RemiKind::bar));
    if (i == 0 || all[i - 1].piece != all[i].piece) {
      CHECK(all[i].start == 0);
    } else {
      CHECK(all[i].start > all[i - 1].start);
      CHECK(all[i].start <= all[i - 1].start + 100);
    }
  }
  const std::vector<PianoWindow> some = windows(library.test, remi(), 100, 5);
  REQUIRE(some.size() == 5);
  CHECK(some[1].piece != some[2].piece);
  const stretto::nn::Batch batch = window_batch(some, 3, 2, 100);
  const auto& tokens = some[4].piece->tokens;
  CHECK(rows(batch.inputs)[1] == tokens.read(some[4].start, 100));
  CHECK(rows(batch.targets)[1] == tokens.read(some[4].start + 1, 100));
  CHECK(windows(library.test, remi(), 1 << 20).empty());
}
