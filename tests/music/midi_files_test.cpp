// The reader of MIDI files on real files, compared with tables that other readers made.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "music/midi_reader.h"
#include "music/midi_writer.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto::music;    // NOLINT
using namespace stretto::testing;  // NOLINT
using stretto::Error;

using Row = std::map<std::string, std::string>;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

/// Returns the rows of a tab-separated table, by the column names in its first line.
std::vector<Row> read_table(const std::string& path) {
  const std::vector<std::string> lines = split(read_file(path), '\n');
  const std::vector<std::string> names = split(lines.at(0), '\t');
  std::vector<Row> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = split(lines[i], '\t');
    Row row;
    for (std::size_t j = 0; j < names.size(); ++j) row[names[j]] = fields.at(j);
    rows.push_back(row);
  }
  return rows;
}

/// Returns the number of elements of `all` whose `member` is `value`.
template <typename Element>
std::size_t count(const std::vector<Element>& all, int Element::*member, int value) {
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [&](const Element& element) { return element.*member == value; }));
}

std::string division_of(const MidiDivision& division) {
  if (division.ticks_per_quarter != 0) return std::to_string(division.ticks_per_quarter);
  return "smpte-" + std::to_string(division.frames_per_second) + "/" +
         std::to_string(division.ticks_per_frame);
}

/// Returns the values of a file under the column names of the tables.
Row row_of(const MidiFile& file) {
  std::size_t tempos = 0;
  for (const TempoMap& map : file.tempo_maps) tempos += map.changes().size();
  std::int64_t last = 0;
  for (const MidiTrack& track : file.tracks) last = std::max(last, track.end);
  const auto text = [](auto number) { return std::to_string(number); };
  return {{"notes", text(file.notes.size())},
          {"note_ons", text(file.notes.size())},
          {"notes_melody", text(count(file.notes, &MidiNote::track, 1))},
          {"notes_bridge", text(count(file.notes, &MidiNote::track, 2))},
          {"notes_piano", text(count(file.notes, &MidiNote::track, 3))},
          {"format", text(file.format)},
          {"tracks", text(file.tracks.size())},
          {"tracks_found", text(file.tracks.size())},
          {"ticks_per_quarter", text(file.division.ticks_per_quarter)},
          {"division", division_of(file.division)},
          {"sustain_cc", text(count(file.controls, &ControlChange::controller, 64))},
          {"controllers", text(file.controls.size())},
          {"tempo_events", text(tempos)},
          {"tempo", text(tempos)},
          {"time_signatures", text(file.time_signatures.size())},
          {"key_signatures", text(file.key_signatures.size())},
          {"last_tick", text(last)}};
}

/// Checks the channels and programs of the notes; the tables may have more, without notes.
void check_channels(const MidiFile& file, const Row& expected) {
  std::set<int> channels;
  std::set<std::string> pairs;
  for (const MidiNote& note : file.notes) {
    channels.insert(note.channel);
    pairs.insert(std::to_string(note.channel) + ":" + std::to_string(note.program));
  }
  if (const auto column = expected.find("channel_program"); column != expected.end()) {
    for (const std::string& named : split(column->second, ',')) pairs.erase(named);
    CHECK(pairs.empty());
  }
  if (const auto column = expected.find("channels"); column != expected.end()) {
    CHECK(channels.size() <= std::stoul(column->second));
    if (channels.count(9) > 0) CHECK(expected.at("has_drums") == "1");
  }
}

/// Checks `file` against every column of `expected` that row_of() has, its channels, and its length
/// in seconds, which the table rounds to thousandths.
void check_row(const MidiFile& file, const Row& expected) {
  for (const auto& [name, value] : row_of(file)) {
    const auto column = expected.find(name);
    if (column == expected.end()) continue;
    INFO(name);
    CHECK(value == column->second);
  }
  check_channels(file, expected);
  const auto seconds = expected.find("seconds");
  if (seconds == expected.end()) return;
  CHECK(file.seconds() == Approx(std::stod(seconds->second)).margin(0.000501).epsilon(0));
}

/// Checks that a valid file has warnings only if it has notes without an end.
void check_warnings(const MidiFile& file, const std::string& name) {
  const std::set<std::string> open_notes = {
      "drywetmidi/valid_multisequence-middle/crixmus.mid", "game_multitrack/Avgvst/Whipped.mid",
      "groove_drums/drummer1/session1/78_jazz-fast_290_beat_4-4.mid"};
  CHECK(file.warnings.empty() != open_notes.contains(name));
  for (const std::string& warning : file.warnings)
    CHECK(warning.find("a note has no end and lasts until the end of its track") !=
          std::string::npos);
}

TEST_CASE("each file of the MIDI zoo agrees with its table or is rejected", "[music][data]") {
  const std::string table = data_path("midi/zoo.tsv");
  STRETTO_NEEDS_DATA(table);
  // Valid files that the reader of the table rejected: a RIFF wrapper, a longer header, a chunk
  // of another type.
  const std::set<std::string> faultless = {
      "derived/riff_rmid_wrapped.mid", "drywetmidi/invalid_invalid-chunk-size/candyluv.mid",
      "drywetmidi/invalid_not-enough-bytes/Feuerradder.mid", "jazz-soft/test-non-midi-track.mid"};
  int refused = 0;
  for (Row expected : read_table(table)) {
    const std::string name = expected.at("file");
    const std::string path = data_path("midi/zoo/" + name);
    INFO(path);
    const bool clean = expected.at("verdict") == "clean";
    // The table merges the tempos of its three independent tracks.
    if (name == "drywetmidi/valid_multisequence-middle/crixmus.mid") expected["seconds"] = "55.525";
    if (clean) {
      const MidiFile file = read_midi(path);
      check_row(file, expected);
      check_warnings(file, name);
      continue;
    }
    try {
      const MidiFile file = read_midi(path);
      // The reader of the table stopped at the errors in these scales; a scale has eight notes.
      const bool scale = name.rfind("jazz-soft/test-illegal-message-", 0) == 0 ||
                         name.rfind("jazz-soft/test-running-status-", 0) == 0;
      CHECK(std::to_string(file.notes.size()) == (scale ? "8" : expected.at("note_ons")));
      CHECK(std::to_string(file.tracks.size()) == expected.at("tracks_found"));
      CHECK(file.warnings.empty() == faultless.contains(name));
    } catch (const Error& error) {
      const std::string message = error.what();
      CHECK(message.rfind("[read_midi] " + path + ": byte ", 0) == 0);
      CHECK(message.find('\n') == std::string::npos);
      ++refused;
    }
  }
  CHECK(refused == 27);
}

TEST_CASE("each file of the MIDI archives agrees with its table", "[music][data]") {
  struct Archive {
    std::string name;
    std::size_t files;
    int zero_lengths;  // number of notes of length 0 in the archive's description; -1: not given
  };
  for (const Archive& archive : {Archive{"asap", 391, 142}, Archive{"game_multitrack", 93, -1},
                                 Archive{"groove_drums", 1150, 817},
                                 Archive{"groove_prompts", 500, -1}, Archive{"pop909", 909, 0}}) {
    const std::string packed = data_path("midi/" + archive.name + ".tar.gz");
    STRETTO_NEEDS_DATA(packed);
    const TempDir folder;
    const std::string command = "tar xzf '" + packed + "' -C '" + folder.str() + "'";
    REQUIRE(std::system(command.c_str()) == 0);
    const std::vector<Row> rows = read_table(data_path("midi/" + archive.name + ".tsv"));
    CHECK(rows.size() == archive.files);
    int zero_lengths = 0;
    for (const Row& row : rows) {
      INFO(row.at("file"));
      const MidiFile file = read_midi(folder.file(row.at("file")));
      check_row(file, row);
      check_warnings(file, row.at("file"));
      for (const MidiNote& note : file.notes) zero_lengths += note.duration == 0 ? 1 : 0;
    }
    if (archive.zero_lengths >= 0) CHECK(zero_lengths == archive.zero_lengths);
  }
}

/// Checks that a file is the same after writing and reading it, except that all tempos are in the
/// first track, which may end later.
void check_round_trip(const MidiFile& file) {
  const MidiFile again = parse_midi(midi_bytes(file), "copy");
  CHECK(again.format == file.format);
  CHECK(again.division == file.division);
  CHECK(again.notes == file.notes);
  CHECK(again.time_signatures == file.time_signatures);
  CHECK(again.key_signatures == file.key_signatures);
  CHECK(again.controls == file.controls);
  CHECK(again.pitch_bends == file.pitch_bends);
  CHECK(again.warnings.empty());
  REQUIRE(again.tracks.size() == file.tracks.size());
  for (std::size_t i = 0; i < file.tracks.size(); ++i) {
    CHECK(again.tracks[i].name == file.tracks[i].name);
    const std::int64_t tempos = i == 0 && file.format != 2 && !file.tempo_map().changes().empty()
                                    ? file.tempo_map().changes().back().tick
                                    : 0;
    CHECK(again.tracks[i].end == std::max(file.tracks[i].end, tempos));
  }
  REQUIRE(again.tempo_maps.size() == file.tempo_maps.size());
  for (std::size_t i = 0; i < file.tempo_maps.size(); ++i)
    CHECK(again.tempo_maps[i].changes() == file.tempo_maps[i].changes());
}

TEST_CASE("each file of the MIDI data is the same after writing and reading it", "[music][data]") {
  const std::string zoo = data_path("midi/zoo");
  STRETTO_NEEDS_DATA(zoo);
  const TempDir folder;
  for (const char* name : {"asap", "game_multitrack", "groove_drums", "groove_prompts", "pop909"}) {
    const std::string packed = data_path("midi/" + std::string(name) + ".tar.gz");
    STRETTO_NEEDS_DATA(packed);
    REQUIRE(std::system(("tar xzf '" + packed + "' -C '" + folder.str() + "'").c_str()) == 0);
  }
  int files = 0, refused = 0;
  for (const std::string& from : {zoo, folder.str()})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(from)) {
      if (!entry.is_regular_file()) continue;
      INFO(entry.path());
      ++files;
      try {
        check_round_trip(read_midi(entry.path().string()));
      } catch (const Error&) {
        ++refused;  // licenses, and files of the zoo that are not MIDI
      }
    }
  CHECK(files > 3200);
  CHECK(refused < 50);
}

}  // namespace
