#include "music/midi_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "music/midi_reader.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto::music;    // NOLINT
using namespace stretto::testing;  // NOLINT
using stretto::Error;

/// A reader of MIDI files, independent of the writer.
class Reader {
 public:
  struct Event {
    int tick;
    int status;
    std::string data;  // for a meta event: its type, then its content
  };
  struct File {
    int format = 0;
    int division = 0;
    std::vector<std::vector<Event>> tracks;
  };

  static File read(const std::string& bytes) {
    Reader reader(bytes);
    File file;
    reader.expect("MThd");
    if (reader.number(4) != 6) throw std::runtime_error("header length");
    file.format = reader.number(2);
    const int tracks = reader.number(2);
    file.division = reader.number(2);
    for (int i = 0; i < tracks; ++i) file.tracks.push_back(reader.track());
    if (reader.at_ != bytes.size()) throw std::runtime_error("bytes after the last track");
    return file;
  }

 private:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  int byte() { return static_cast<unsigned char>(bytes_.at(at_++)); }

  int number(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) value = value * 256 + byte();
    return value;
  }

  int variable() {
    int value = 0;
    int b = 0x80;
    while (b >= 0x80) {
      b = byte();
      value = value * 128 + b % 128;
    }
    return value;
  }

  std::string take(int count) {
    std::string data;
    for (int i = 0; i < count; ++i) data += static_cast<char>(byte());
    return data;
  }

  void expect(const std::string& type) {
    if (take(4) != type) throw std::runtime_error("expected " + type);
  }

  std::vector<Event> track() {
    expect("MTrk");
    const int length = number(4);
    const std::size_t end = at_ + static_cast<std::size_t>(length);
    std::vector<Event> events;
    int tick = 0;
    while (at_ < end) {
      tick += variable();
      const int status = byte();
      if (status < 0x80) throw std::runtime_error("running status or garbage");
      std::string data;
      if (status == 0xFF) {
        data = take(1);
        data += take(variable());
      } else {
        data = take(status / 16 == 0xC ? 1 : 2);
      }
      events.push_back({tick, status, data});
    }
    if (at_ != end || events.empty() || events.back().data != "\x2F") {
      throw std::runtime_error("a track that does not stop at its End of Track");
    }
    return events;
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
};

/// Returns the notes of a track; throws if a note-on or note-off is unmatched.
std::vector<Note> notes_of(const std::vector<Reader::Event>& events) {
  std::vector<Note> notes;
  std::map<char, std::size_t> sounding;
  for (const Reader::Event& event : events) {
    if (event.status / 16 == 9) {
      if (!sounding.emplace(event.data[0], notes.size()).second) {
        throw std::runtime_error("a note starts before the last one of its pitch ends");
      }
      notes.push_back({event.tick, 0, event.data[0], event.data[1]});
    } else if (event.status / 16 == 8) {
      notes.at(sounding.at(event.data[0])).duration =
          event.tick - notes[sounding.at(event.data[0])].start;
      sounding.erase(event.data[0]);
    }
  }
  if (!sounding.empty()) throw std::runtime_error("a note never ends");
  return notes;
}

bool equal(const Note& a, const Note& b) {
  return a.start == b.start && a.duration == b.duration && a.pitch == b.pitch &&
         a.velocity == b.velocity;
}

/// Returns (tick, track, program) of each note as a player hears it: programs belong to channels,
/// and tracks are merged by tick, then track.
std::vector<std::tuple<std::int64_t, int, int>> played_programs(const std::string& bytes) {
  std::vector<std::tuple<int, int, Reader::Event>> merged;
  const Reader::File file = Reader::read(bytes);
  for (std::size_t i = 0; i < file.tracks.size(); ++i)
    for (const Reader::Event& event : file.tracks[i])
      merged.emplace_back(event.tick, int(i), event);
  std::stable_sort(merged.begin(), merged.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  std::map<int, int> programs;
  std::vector<std::tuple<std::int64_t, int, int>> played;
  for (const auto& [tick, track, event] : merged) {
    if (event.status / 16 == 0xC) programs[event.status % 16] = event.data[0];
    if (event.status / 16 == 9) played.emplace_back(tick, track, programs[event.status % 16]);
  }
  return played;
}

std::vector<std::tuple<std::int64_t, int, int>> programs_of(const std::vector<MidiNote>& notes) {
  std::vector<std::tuple<std::int64_t, int, int>> all;
  for (const MidiNote& note : notes) all.emplace_back(note.start, note.track, note.program);
  return all;
}

Song one_note(Note note) { return {480, 120, {{"A", 2, 19, {note}}}}; }

template <std::size_t Size>
std::string bytes_of(const char (&literal)[Size]) {
  return std::string(literal, Size - 1);
}

TEST_CASE("a tiny song has exactly these bytes", "[music]") {
  // Two adjacent notes of one pitch, passed out of order; 480 ticks need two bytes.
  const Song song{480, 120, {{"A", 2, 19, {{480, 1, 60, 64}, {0, 480, 60, 100}}}}};
  const std::string expected =
      bytes_of("MThd\0\0\0\x06\0\x01\0\x02\x01\xE0") +
      bytes_of("MTrk\0\0\0\x13\0\xFF\x58\x04\x04\x02\x18\x08") +
      bytes_of("\0\xFF\x51\x03\x07\xA1\x20\0\xFF\x2F\0") + bytes_of("MTrk\0\0\0\x1D") +
      bytes_of("\0\xFF\x03\x01") + "A" + bytes_of("\0\xC2\x13") +
      bytes_of("\0\x92\x3C\x64\x83\x60\x82\x3C\0\0\x92\x3C\x40\x01\x82\x3C\0\0\xFF\x2F\0");
  CHECK(midi_bytes(song) == expected);
}

TEST_CASE("MIDI delta times are written in one to four bytes", "[music]") {
  for (const int start : {0, 127, 128, 8192, 16383, 16384, 2097151, 2097152, 268435454}) {
    const auto file = Reader::read(midi_bytes(one_note({start, 1, 64, 90})));
    const std::vector<Note> notes = notes_of(file.tracks.at(1));
    REQUIRE(notes.size() == 1);
    CHECK(equal(notes[0], {start, 1, 64, 90}));
  }
}

TEST_CASE("a MIDI song is read back unchanged", "[music]") {
  const TempDir folder;
  const std::string path = folder.file("song.mid");
  const Song song{96,
                  80,
                  {{"High", 0, 52, {{0, 96, 72, 80}, {96, 48, 72, 81}, {96, 48, 76, 82}}},
                   {"Empty", 9, 0, {}}}};
  write_file(path, "old");
  write_midi(path, song);
  CHECK(entries(folder.str()) == 1);
  const auto file = Reader::read(read_file(path));
  CHECK(file.format == 1);
  CHECK(file.division == 96);
  REQUIRE(file.tracks.size() == 3);
  CHECK(file.tracks[0][1].data == bytes_of("\x51\x0B\x71\xB0"));  // 750000 microseconds
  CHECK(file.tracks[1][0].data == "\x03High");
  CHECK(file.tracks[2][1].status == 0xC9);
  const std::vector<Note> notes = notes_of(file.tracks[1]);
  REQUIRE(notes.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(equal(notes[i], song.tracks[0].notes[i]));
  CHECK_THAT(error_of<Error>([&] { write_midi(folder.str(), song); }),
             Containing(folder.str() + ": exists and is not a regular file"));
}

TEST_CASE("MIDI values out of range are rejected with their names", "[music]") {
  const auto refusal = [](const Song& song) { return error_of<Error>([&] { midi_bytes(song); }); };
  CHECK(refusal(one_note({-1, 1, 60, 64})) ==
        "[write_midi] track 0 note 0 has start -1; expected 0 or more");
  CHECK(refusal(one_note({0, 0, 60, 64})) ==
        "[write_midi] track 0 note 0 has duration 0; expected 1 or more");
  CHECK(refusal(one_note({268435455, 1, 60, 64})) ==
        "[write_midi] track 0 note 0 has start 268435455; expected an end before tick 2^28");
  CHECK(refusal(one_note({5, std::numeric_limits<int>::max(), 60, 64})) ==
        "[write_midi] track 0 note 0 has start 5; expected an end before tick 2^28");
  CHECK(refusal(one_note({0, 1, 128, 64})) ==
        "[write_midi] track 0 note 0 has pitch 128; expected 0 to 127");
  CHECK(refusal(one_note({0, 1, 60, 0})) ==
        "[write_midi] track 0 note 0 has velocity 0; expected 1 to 127");
  CHECK(refusal({480, 80, {{"", 16, 0, {}}}}) ==
        "[write_midi] track 0 has channel 16; expected 0 to 15");
  CHECK(refusal({480, 80, {{"", 0, -1, {}}}}) ==
        "[write_midi] track 0 has program -1; expected 0 to 127");
  CHECK(refusal({0, 80, {}}) == "[write_midi] ticks_per_quarter is 0; expected 1 to 32767");
  for (const double tempo : {0.0, -80.0, 3.5, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK(refusal({480, tempo, {}}).find("[write_midi] quarters_per_minute is ") == 0);
  }
}

TEST_CASE("later tempos are written to the first track", "[music]") {
  Song song{480, 120, {}, {{960, 60}, {1000, 240}}};
  const auto track = Reader::read(midi_bytes(song)).tracks.at(0);
  REQUIRE(track.size() == 5);
  CHECK(track[2].tick == 960);
  CHECK(track[2].data == std::string("\x51\x0F\x42\x40", 4));
  CHECK(track[3].tick == 1000);
  CHECK(track[3].data == std::string("\x51\x03\xD0\x90", 4));
  const auto refusal = [&] { return error_of<Error>([&] { midi_bytes(song); }); };
  for (const int tick : {0, -1, 960, 1 << 28}) {
    song.tempos[1].tick = tick;
    CHECK(refusal() == "[write_midi] a tempo change is at tick " + std::to_string(tick) +
                           "; expected a tick after the previous change and below 2^28");
  }
  song.tempos = {{1, 1}};
  CHECK(refusal() == "[write_midi] quarters_per_minute is 1.000000; expected 3.58 to 60000000");
}

TEST_CASE("the content of a file is written in any order of its notes", "[music]") {
  MidiFile file = parse_midi(midi_bytes(one_note({0, 10, 60, 64})), "x");
  REQUIRE(file.notes.size() == 1);
  const MidiNote first = file.notes[0];
  MidiNote second = first;
  second.start = 50, second.program = 7;
  MidiNote third = second;
  third.start = 30, third.duration = 0;
  file.notes = {third, second, first};  // programs change between them
  file.pitch_bends = {{3, 2, -8192, 1}, {9, 2, 8191, 1}};
  file.controls = {{5, 1, 64, 127, 1}};
  const MidiFile again = parse_midi(midi_bytes(file), "x");
  REQUIRE(again.notes.size() == 3);
  CHECK(again.notes[0] == first);
  CHECK(again.notes[1].duration == 0);
  CHECK(again.notes[2].program == 7);
  CHECK(again.notes[2].start == 50);
  CHECK(again.pitch_bends == file.pitch_bends);
  CHECK(again.controls == file.controls);
}

TEST_CASE("a note that a controller would end is refused", "[music]") {
  MidiFile file = parse_midi(midi_bytes(one_note({5, 10, 60, 64})), "x");
  for (const int tick : {5, 15}) {
    file.controls = {{tick, 2, 123, 0, 0}};
    CHECK(parse_midi(midi_bytes(file), "x").notes == file.notes);
  }
  file.controls.push_back({10, 2, 120, 0, 0});
  CHECK(error_of<Error>([&] { midi_bytes(file); }) ==
        "[write_midi] note 0 sounds from tick 5 for 10, but a controller ends the notes of its "
        "channel at tick 10");
}

TEST_CASE("each note sounds with its program where tracks share a channel", "[music]") {
  std::vector<Track> tracks;
  for (int program = 0; program < 40; ++program) {
    tracks.push_back({"", program % 3, program, {}});
    for (int i = 0; i < 4; ++i) tracks.back().notes.push_back({i * (program % 5 + 1), 2, 60, 64});
  }
  const std::string song = midi_bytes(Song{480, 120, tracks});
  const MidiFile file = parse_midi(song, "x");
  REQUIRE(file.notes.size() == 160);
  // A program set twice in one track, with that of another track between.
  MidiFile returning = parse_midi(midi_bytes(one_note({0, 10, 60, 64})), "x");
  returning.tracks.push_back({"", 0});
  MidiNote note = returning.notes.at(0);
  for (const int program : {5, note.program}) {
    note.start += 20, note.program = program, note.track = program == 5 ? 2 : 1;
    returning.notes.push_back(note);
  }
  for (const auto& [bytes, notes] :
       {std::pair(song, file.notes), std::pair(midi_bytes(file), file.notes),
        std::pair(midi_bytes(returning), returning.notes)}) {
    CHECK(played_programs(bytes) == programs_of(notes));
    CHECK(parse_midi(bytes, "x").notes.size() == notes.size());
  }
}

TEST_CASE("the content of a file with values out of range is refused", "[music]") {
  const MidiFile good = parse_midi(midi_bytes(one_note({0, 10, 60, 64})), "x");
  const auto refusal = [&](auto change) {
    MidiFile file = good;
    change(file);
    return error_of<Error>([&] { midi_bytes(file); });
  };
  using F = MidiFile&;
  CHECK(refusal([](F f) { f.notes[0].pitch = 128; }) ==
        "[write_midi] note 0 has pitch 128; expected 0 to 127");
  CHECK(refusal([](F f) { f.notes[0].track = 2; }) ==
        "[write_midi] note 0 has track 2; expected 0 to 1");
  CHECK_THAT(refusal([](F f) { f.notes[0].duration = -1; }), Containing("note 0 has duration -1"));
  CHECK(refusal([](F f) { f.format = 3; }) == "[write_midi] format 3; expected 0 to 2");
  CHECK(refusal([](F f) { f.format = 0; }) == "[write_midi] format 0 with 2 tracks");
  CHECK_THAT(refusal([](F f) { f.format = 2; }), Containing("format 2 with 1 tempo maps"));
  for (const int denominator : {0, 3, -4, 1 << 16})
    CHECK_THAT(refusal([&](F f) { f.time_signatures[0].denominator = denominator; }),
               Containing("time signature 0 has denominator"));
  CHECK_THAT(refusal([](F f) { f.key_signatures = {{0, 8, false, 0}}; }), Containing("sharps 8"));
  CHECK_THAT(refusal([](F f) { f.pitch_bends = {{0, 0, 8192, 0}}; }), Containing("value 8192"));
  CHECK_THAT(refusal([](F f) { f.tracks[0].end = int64_t{1} << 60; }),
             Containing("track 0 has an end"));
  CHECK_THAT(refusal([](F f) {
               f.tempo_maps = {TempoMap({}, {{INT64_MAX, 500000}})};
             }),
             Containing("a tempo at tick"));
  CHECK_THAT(refusal([](F f) {
               f = {.tempo_maps = {TempoMap({}, {{0, 500000}})}};
             }),
             Containing("tempos without a track"));
  CHECK_THAT(refusal([](F f) { f.division = {0, 0, 4}; }), Containing("frames_per_second is 0"));
}

}  // namespace
