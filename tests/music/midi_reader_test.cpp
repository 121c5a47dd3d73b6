#include "music/midi_reader.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "examples/common/portable_random.h"
#include "music/midi_writer.h"
#include "tests/music/midi_bytes.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT
using namespace stretto::testing;         // NOLINT
using stretto::Error;
using stretto::examples::PortableRandom;
using Strings = std::vector<std::string>;

MidiFile parse(const std::string& bytes) { return parse_midi(bytes, "song.mid"); }

/// Returns the error of parse_midi() for `bytes`.
std::string refusal(const std::string& bytes) {
  return error_of<Error>([&] { parse(bytes); });
}

/// start, duration, pitch, velocity, channel, program, track
using Row = std::tuple<std::int64_t, std::int64_t, int, int, int, int, int>;

std::vector<Row> rows(const MidiFile& file) {
  std::vector<Row> all;
  for (const MidiNote& note : file.notes) {
    all.emplace_back(note.start, note.duration, note.pitch, note.velocity, note.channel,
                     note.program, note.track);
  }
  return all;
}

/// The events of a note of pitch 60 from tick 0 to `end` (at most 127).
std::string note_to(int end) {
  return bytes_of("\0\x90\x3C\x40") + static_cast<char>(end) + bytes_of("\x80\x3C\0");
}

TEST_CASE("a MIDI file is read field by field", "[music]") {
  const MidiFile file = parse(midi(
      1,
      {bytes_of("\0\xFF\x51\x03\x0F\x42\x40\0\xFF\x58\x04\x06\x03\x18\x08\x60\xFF\x59\x02\xFD\1"),
       bytes_of("\0\xFF\x03\x05Piano\0\xFF\x03\x05"
                "Forte\0\xC2\x13\x30\x92\x3C\x64") +
           bytes_of("\0\xB2\x40\x7F\x60\x82\x3C\x40\x60\xB2\x40\0")}));
  CHECK(file.format == 1);
  CHECK(file.division.ticks_per_quarter == 96);
  REQUIRE(file.tracks.size() == 2);
  CHECK(file.tracks[0].name.empty());
  CHECK(file.tracks[0].end == 96);
  CHECK(file.tracks[1].name == "Piano");
  CHECK(file.tracks[1].end == 240);
  REQUIRE(rows(file) == std::vector<Row>{{48, 96, 60, 100, 2, 19, 1}});
  CHECK(file.notes[0].start_seconds == 0.5);
  CHECK(file.notes[0].seconds == 1);
  CHECK(file.seconds() == 2.5);
  REQUIRE(file.tempo_maps.size() == 1);
  REQUIRE(file.tempo_map().changes().size() == 1);
  CHECK(file.tempo_map().changes()[0].microseconds_per_quarter == 1000000);
  REQUIRE(file.time_signatures.size() == 1);
  CHECK(file.time_signatures[0].numerator == 6);
  CHECK(file.time_signatures[0].denominator == 8);
  REQUIRE(file.key_signatures.size() == 1);
  CHECK(file.key_signatures[0].tick == 96);
  CHECK(file.key_signatures[0].sharps == -3);
  CHECK(file.key_signatures[0].minor);
  REQUIRE(file.controls.size() == 2);
  CHECK(file.controls[0].tick == 48);
  CHECK(file.controls[0].channel == 2);
  CHECK(file.controls[0].controller == 64);
  CHECK(file.controls[0].value == 127);
  CHECK(file.controls[1].tick == 240);
  CHECK(file.controls[1].track == 1);
  CHECK(file.warnings.empty());
}

TEST_CASE("a MIDI file without tracks or notes is valid", "[music]") {
  const MidiFile none = parse(header(2, 0, 480));
  CHECK(none.tracks.empty());
  CHECK(none.seconds() == 0);
  const MidiFile silent = parse(midi(0, {""}));
  CHECK(silent.tracks.size() == 1);
  CHECK(silent.notes.empty());
  CHECK(silent.warnings.empty());
}

TEST_CASE("MIDI notes of one pitch end in the order in which they began", "[music]") {
  // Two overlapping notes of pitch 60, a third on another channel; the second note-off is a note-on
  // of velocity 0.
  const MidiFile file =
      parse(midi(0, {bytes_of("\0\x90\x3C\x10\x0A\x90\x3C\x20\0\x91\x3C\x30\x0A\x80\x3C\0") +
                     bytes_of("\x0A\x90\x3C\0\x0A\x81\x3C\0")}));
  CHECK(rows(file) == std::vector<Row>{{0, 20, 60, 16, 0, 0, 0},
                                       {10, 20, 60, 32, 0, 0, 0},
                                       {10, 30, 60, 48, 1, 0, 0}});
  // A note-off without a note, a note of length 0, a note without a note-off.
  const MidiFile odd = parse(midi(0, {bytes_of("\0\x80\x3C\0\x05\x90\x3C\x10\0\x80\x3C\0") +
                                      bytes_of("\0\x90\x3D\x10\x05\xFF\x01\0")}));
  CHECK(rows(odd) == std::vector<Row>{{5, 0, 60, 16, 0, 0, 0}, {5, 5, 61, 16, 0, 0, 0}});
  CHECK(odd.warnings == Strings{"byte 34: a note has no end and lasts until the end of its track"});
  // A note-off ends a note of another track only if it ends no note of its track.
  const MidiFile apart = parse(midi(1, {bytes_of("\0\x90\x3C\x10\x20\xFF\x01\0"), note_to(4)}));
  CHECK(rows(apart) == std::vector<Row>{{0, 32, 60, 16, 0, 0, 0}, {0, 4, 60, 64, 0, 0, 1}});
}

TEST_CASE("a MIDI note-off without a note of its track ends one of another track", "[music]") {
  // Track 0: pitch 60 from 0 and 16, 61 from 0, the end at 48. Track 1: ends of 60 at 8 and 40.
  const Strings tracks = {
      bytes_of("\0\x90\x3C\x10\0\x90\x3D\x10\x10\x90\x3C\x10") + bytes_of("\x20\xFF\x01\0"),
      bytes_of("\x08\x80\x3C\0\x20\x90\x3C\0")};
  const MidiFile file = parse(midi(1, tracks));
  CHECK(rows(file) == std::vector<Row>{{0, 8, 60, 16, 0, 0, 0},
                                       {0, 48, 61, 16, 0, 0, 0},
                                       {16, 24, 60, 16, 0, 0, 0}});
  CHECK(file.warnings ==
        Strings{"byte 26: a note has no end and lasts until the end of its track"});
  CHECK(parse(midi_bytes(file)).notes == file.notes);
  const MidiFile apart = parse(midi(2, tracks));
  CHECK(rows(apart) == std::vector<Row>{{0, 48, 60, 16, 0, 0, 0},
                                        {0, 48, 61, 16, 0, 0, 0},
                                        {16, 32, 60, 16, 0, 0, 0}});
  CHECK(apart.warnings.size() == 3);
}

TEST_CASE("overlapping MIDI notes of one pitch take linear time", "[music]") {
  std::string events;
  for (int i = 0; i < 100000; ++i) events += bytes_of("\0\x90\x3C\x10");
  for (int i = 0; i < 100000; ++i) events += bytes_of("\0\x80\x3C\0");
  CHECK(parse(midi(0, {events})).notes.size() == 100000);  // squared, these are minutes
}

TEST_CASE("all notes off and all sound off end the notes of a MIDI channel", "[music]") {
  const std::string two_notes = bytes_of("\0\x90\x3C\x10\0\x91\x3D\x10");
  const std::string end_at_96 = bytes_of("\x50\xFF\x01\0");
  for (int controller = 0; controller < 128; ++controller) {
    const bool silent = controller == 120 || controller >= 123;
    INFO("controller " << controller);
    const std::string control = bytes_of("\x10\xB0") + char(controller) + char(0);
    const MidiFile one = parse(midi(0, {two_notes + control + end_at_96}));
    CHECK(rows(one) ==
          std::vector<Row>{{0, silent ? 16 : 96, 60, 16, 0, 0, 0}, {0, 96, 61, 16, 1, 0, 0}});
    CHECK(one.warnings.size() == (silent ? 1 : 2));  // about the other channel
    // Also in another track, and for a note that has a note-off.
    const std::string ended = two_notes + bytes_of("\x60\x80\x3C\0");
    const MidiFile other = parse(midi(1, {ended, control + bytes_of("\x10\x90\x3C\x10")}));
    CHECK(rows(other) == std::vector<Row>{{0, silent ? 16 : 96, 60, 16, 0, 0, 0},
                                          {0, 96, 61, 16, 1, 0, 0},
                                          {32, 0, 60, 16, 0, 0, 1}});
    CHECK(rows(parse(midi(2, {ended, control}))).at(0) == Row{0, 96, 60, 16, 0, 0, 0});
    CHECK(parse(midi_bytes(other)).notes == other.notes);
  }
}

TEST_CASE("MIDI running status works for messages with one and two data bytes", "[music]") {
  const MidiFile file = parse(midi(0, {bytes_of("\0\xC0\x05\0\x06\0\xD0\x01\0\x02\0\x90\x3C\x10") +
                                       bytes_of("\x08\x3E\x10\x08\x3C\0\0\x3E\0")}));
  CHECK(rows(file) == std::vector<Row>{{0, 16, 60, 16, 0, 6, 0}, {8, 8, 62, 16, 0, 6, 0}});
  CHECK(file.warnings.empty());
}

TEST_CASE("MIDI running status continues after meta and system messages, with a warning",
          "[music]") {
  // The note-on begins at byte 22 and has 4 bytes; `between` follows.
  for (const std::string& between :
       {bytes_of("\0\xFF\x01\x02hi"), bytes_of("\0\xF0\x02\x01\xF7"), bytes_of("\0\xF1\x05")}) {
    const MidiFile file =
        parse(midi(0, {bytes_of("\0\x90\x3C\x10") + between + bytes_of("\x08\x3C\0")}));
    CHECK(rows(file) == std::vector<Row>{{0, 8, 60, 16, 0, 0, 0}});
    REQUIRE_FALSE(file.warnings.empty());
    CHECK(file.warnings.back() == "byte " + std::to_string(22 + 4 + between.size() + 1) +
                                      ": running status continues after a meta or system message");
  }
  const MidiFile clock =
      parse(midi(0, {bytes_of("\0\x90\x3C\x10") + bytes_of("\x02\xF8") + bytes_of("\x08\x3C\0")}));
  CHECK(rows(clock) == std::vector<Row>{{0, 10, 60, 16, 0, 0, 0}});
  CHECK(clock.warnings == Strings{"byte 27: system message 0xF8 inside a track is skipped"});
}

TEST_CASE("MIDI delta times have up to four bytes", "[music]") {
  const auto start = [](const std::string& delta) {
    return parse(midi(0, {delta + bytes_of("\x90\x3C\x10")})).notes.at(0).start;
  };
  CHECK(start(bytes_of("\x7F")) == 127);
  CHECK(start(bytes_of("\x81\0")) == 128);
  CHECK(start(bytes_of("\xFF\x7F")) == 16383);
  CHECK(start(bytes_of("\x81\x80\0")) == 16384);
  CHECK(start(bytes_of("\xFF\xFF\xFF\x7F")) == 268435455);
  CHECK(start(bytes_of("\x80\x80\x80\0")) == 0);
  CHECK(refusal(midi(0, {bytes_of("\x81\x80\x80\x80\0\x90\x3C\x10")})) ==
        "[read_midi] song.mid: byte 22: a variable-length quantity has more than 4 bytes");
  // Ticks may exceed 32 bits.
  std::string long_song;
  for (int i = 0; i < 40; ++i) long_song += bytes_of("\xFF\xFF\xFF\x7F\xB0\x01\x01");
  CHECK(parse(midi(0, {long_song})).tracks[0].end == std::int64_t{40} * 268435455);
}

TEST_CASE("a MIDI note has the program of its channel", "[music]") {
  // Track 0 sets channel 0 at ticks 0 and 8, track 2 sets it at tick 4.
  const Strings tracks = {bytes_of("\0\xC0\x05\x08\xC0\x06"),
                          bytes_of("\0\x90\x3C\x10\x04\x90\x3D\x10\x04\x90\x3E\x10\0\x91\x3F\x10"),
                          bytes_of("\0\x90\x40\x10\x04\xC0\x07\x08\x90\x41\x10")};
  CHECK(rows(parse(midi(1, tracks))) == std::vector<Row>{{0, 8, 60, 16, 0, 5, 1},
                                                         {0, 12, 64, 16, 0, 5, 2},
                                                         {4, 4, 61, 16, 0, 7, 1},
                                                         {8, 0, 62, 16, 0, 6, 1},
                                                         {8, 0, 63, 16, 1, 0, 1},
                                                         {12, 0, 65, 16, 0, 7, 2}});
  CHECK(rows(parse(midi(2, tracks))) == std::vector<Row>{{0, 8, 60, 16, 0, 0, 1},
                                                         {4, 4, 61, 16, 0, 0, 1},
                                                         {8, 0, 62, 16, 0, 0, 1},
                                                         {8, 0, 63, 16, 1, 0, 1},
                                                         {0, 12, 64, 16, 0, 0, 2},
                                                         {12, 0, 65, 16, 0, 7, 2}});
}

TEST_CASE("each track of a format 2 MIDI file has its own tempo", "[music]") {
  const std::string slow = bytes_of("\0\xFF\x51\x03\x0F\x42\x40") + note_to(96);
  const MidiFile file = parse(midi(2, {slow, note_to(96)}));
  REQUIRE(file.tempo_maps.size() == 2);
  REQUIRE(file.notes.size() == 2);
  CHECK(file.notes[0].seconds == 1);
  CHECK(file.notes[1].seconds == 0.5);
  CHECK(file.tempo_map(1).seconds(192) == 1);
  CHECK(file.seconds() == 1);
  const MidiFile together = parse(midi(1, {note_to(96), slow}));
  CHECK(together.notes[0].seconds == 1);
  CHECK(together.tempo_map(1).seconds(96) == 1);
}

TEST_CASE("MIDI chunks and events of unknown types are skipped", "[music]") {
  const std::string sysex = bytes_of("\0\xF0\x03\x43\x12\0\x10\xF7\x02\x01\xF7\0\xF7\x01\xFA");
  const std::string metas = bytes_of("\0\xFF\x60\x02\x90\x3C\0\xFF\x7F\x81\0") +
                            std::string(128, '\x90') + bytes_of("\0\xE0\0\x40\0\xA0\x3C\x10");
  const std::string bytes = header(0, 1, 96) + chunk("Junk", "MTrk") +
                            track(sysex + metas + note_to(16)) + chunk("XFIH", "");
  const MidiFile file = parse(bytes);
  CHECK(rows(file) == std::vector<Row>{{16, 16, 60, 64, 0, 0, 0}});
  CHECK(file.warnings.empty());
}

TEST_CASE("a MIDI file in a RIFF wrapper is read", "[music]") {
  const std::string inner = midi(0, {note_to(9)});
  const auto riff = [](const std::string& chunks) {
    return bytes_of("RIFF\x40\0\0\0RMID") + chunks;
  };
  const std::string odd_chunk = bytes_of("LIST\x03\0\0\0abc\0");
  const std::string data = bytes_of("data") + static_cast<char>(inner.size()) + bytes_of("\0\0\0");
  const MidiFile file = parse(riff(odd_chunk + data + inner + "tail"));
  CHECK(rows(file) == std::vector<Row>{{0, 9, 60, 64, 0, 0, 0}});
  CHECK(file.warnings.empty());
  CHECK(rows(parse(riff(bytes_of("data\xFF\xFF\xFF\xFF") + inner))).size() == 1);
  CHECK(refusal(riff(odd_chunk)) ==
        "[read_midi] song.mid: byte 24: the RIFF file has no MIDI data");
  CHECK(refusal(riff(data + "none")) ==
        "[read_midi] song.mid: byte 20: not a MIDI file: it does not begin with MThd");
}

TEST_CASE("missing and extra bytes of a MIDI file give warnings", "[music]") {
  const std::string note = note_to(9);
  const std::vector<Row> one = {{0, 9, 60, 64, 0, 0, 0}};
  const std::string head = header(0, 1, 96);
  const auto check = [&](const std::string& bytes, const Strings& warnings) {
    const MidiFile file = parse(bytes);
    CHECK(rows(file) == one);
    CHECK(file.warnings == warnings);
  };
  check(head + chunk("MTrk", note), {"byte 30: the track has no End of Track"});
  check(head + track(note) + "x", {"byte 34: 1 bytes follow the last chunk"});
  check(head + track(note) + std::string(9, '\0'), {"byte 34: 9 bytes follow the last chunk"});
  check(head + track(note) + midi(0, {note}), {"byte 34: 34 bytes follow the last chunk"});
  check(head + chunk("MTrk", note + kEnd + "xy"), {"byte 34: 2 bytes follow End of Track"});
  check(header(0, 3, 96) + track(note), {"byte 10: tracks announced: 3, found: 1"});
  check(head + chunk("MTrk", note + bytes_of("\0\x90\x3C")),
        {"byte 30: the track ends inside an event"});
  check(head + chunk("MTrk", note + bytes_of("\0\xFF\x01\x05"
                                             "abc")),
        {"byte 30: the track ends inside an event"});
  const auto of_length = [&](std::size_t length, const std::string& events) {
    return bytes_of("MTrk") + big_endian(length, 4) + events;
  };
  check(head + of_length(0xFFFFFFFF, note + kEnd),
        {"byte 18: the track's length is 4294967295, but it is read as 12"});
  check(head + of_length(7, note + kEnd),
        {"byte 18: the track's length is 7, but it is read as 12"});
  check(head + of_length(0xFFFFFFFF, note),
        {"byte 30: the track has no End of Track",
         "byte 18: the track's length is 4294967295, but it is read as 8"});
}

TEST_CASE("a wrong chunk length does not hide the next MIDI track", "[music]") {
  const std::string note = note_to(9);
  for (const std::size_t length : {11, 13, 14, 20, 1000000}) {
    INFO(length);
    const MidiFile file =
        parse(header(1, 2, 96) + "MTrk" + big_endian(length, 4) + note + kEnd + track(note));
    CHECK(file.notes.size() == 2);
    CHECK(file.warnings.at(0) ==
          "byte 18: the track's length is " + std::to_string(length) + ", but it is read as 12");
  }
  const MidiFile junk = parse(header(1, 2, 96) + track(note) + "\x01garbage" + track(note));
  CHECK(junk.notes.size() == 2);
  CHECK(junk.warnings ==
        Strings{"byte 34: there is no chunk here; reading continues with the next track"});
  const MidiFile alien =
      parse(header(1, 2, 96) + track(note) + "LIST\xFF\xFF\xFF\xFF" + track(note));
  CHECK(alien.notes.size() == 2);
}

TEST_CASE("invalid MIDI meta events are skipped with a warning", "[music]") {
  const MidiFile file = parse(midi(
      0, {bytes_of("\0\xFF\x51\x02\x0F\x42\0\xFF\x51\x03\0\0\0\0\xFF\x58\x04\x04\x10\x18\x08") +
          bytes_of("\0\xFF\x58\x04\0\x02\x18\x08\0\xFF\x59\x02\x08\0\0\xFF\x59\x02\0\xFF")}));
  CHECK(file.tempo_map().changes().empty());
  CHECK(file.time_signatures.empty());
  CHECK(file.key_signatures.empty());
  CHECK(file.warnings == Strings{"byte 22: a tempo of 2 bytes is ignored",
                                 "byte 28: a tempo of 0 is ignored",
                                 "byte 35: a time signature of 4/2^16 is ignored",
                                 "byte 43: a time signature of 0/2^2 is ignored",
                                 "byte 51: a key signature of 8 sharps in mode 0 is ignored",
                                 "byte 57: a key signature of 0 sharps in mode 255 is ignored"});
  const MidiFile two = parse(header(0, 2, 96) + track(note_to(9)) + track(note_to(9)));
  CHECK(two.format == 1);
  CHECK(two.warnings ==
        Strings{"byte 8: the file of format 0 has more than one track and is read as format 1"});
}

TEST_CASE("files that are not MIDI are rejected in one line", "[music]") {
  const std::string good = midi(0, {note_to(9)});
  CHECK(refusal("") == "[read_midi] song.mid: byte 0: the file is empty");
  CHECK(refusal("MTh") ==
        "[read_midi] song.mid: byte 0: not a MIDI file: it does not begin with MThd");
  CHECK(refusal("RIFF\1\1\1\1WAVE") ==
        "[read_midi] song.mid: byte 0: not a MIDI file: it does not begin with MThd");
  CHECK(refusal(good.substr(0, 13)) == "[read_midi] song.mid: byte 13: the header is truncated");
  CHECK(refusal(bytes_of("MThd\0\0\0\x05\0\0\0\1\0\x60")) ==
        "[read_midi] song.mid: byte 4: the header's length is 5; expected 6 or more");
  CHECK(refusal(bytes_of("MThd\xFF\xFF\xFF\xFF\0\0\0\1\0\x60")) ==
        "[read_midi] song.mid: byte 14: the header is truncated");
  CHECK(refusal(header(3, 1, 96)) == "[read_midi] song.mid: byte 8: format 3; expected 0, 1 or 2");
  CHECK(refusal(header(1, 1, 0)) ==
        "[read_midi] song.mid: byte 12: the division is 0 ticks per quarter note");
  CHECK(refusal(header(1, 1, 0xE700)) ==
        "[read_midi] song.mid: byte 12: the division is 0 ticks per frame");
  CHECK(refusal(header(1, 1, 96)) ==
        "[read_midi] song.mid: byte 14: tracks announced: 1, found: 0");
  CHECK(refusal(midi(0, {bytes_of("\0\x3C\x10")})) ==
        "[read_midi] song.mid: byte 23: data byte 0x3C has no status before it");
  CHECK(refusal(midi(0, {bytes_of("\0\x90\x3C\xAB")})) ==
        "[read_midi] song.mid: byte 25: data byte 0xAB; expected 0x00 to 0x7F");
  // A longer header is accepted.
  CHECK(parse(chunk("MThd", bytes_of("\0\0\0\1\0\x60more")) + track(note_to(9))).notes.size() == 1);

  const TempDir folder;
  const std::string path = folder.file("song.mid");
  CHECK(error_of<Error>([&] { read_midi(path); }) ==
        "[read_midi] " + path + ": cannot open: No such file or directory");
  CHECK(error_of<Error>([&] { read_midi(folder.str()); }) ==
        "[read_midi] " + folder.str() + ": is not a regular file");
  CHECK(error_of<Error>([&] { read_midi("/dev/zero"); }) ==
        "[read_midi] /dev/zero: is not a regular file");
  write_file(path, "RIFF");
  CHECK(error_of<Error>([&] { read_midi(path); }) ==
        "[read_midi] " + path + ": byte 0: not a MIDI file: it does not begin with MThd");
}

TEST_CASE("a MIDI file that exceeds a limit is rejected", "[music]") {
  const TempDir folder;
  const std::string path = folder.file("long.mid");
  write_file(path, midi(0, {note_to(9)}));
  std::filesystem::resize_file(path, max_midi_bytes + 1);
  CHECK(error_of<Error>([&] { read_midi(path); }) ==
        "[read_midi] " + path + ": 67108865 bytes; at most 67108864 allowed");
  std::filesystem::resize_file(path, max_midi_bytes);
  CHECK(read_midi(path).notes.size() == 1);

  const std::string events = bytes_of("\0\xC0") + std::string(2 * max_midi_events - 1, '\2');
  CHECK(refusal(midi(0, {events})) == "[read_midi] song.mid: byte " +
                                          std::to_string(22 + events.size()) +
                                          ": the file has more than 4000000 events");
  CHECK(parse(header(0, 1, 96) + chunk("MTrk", events)).tracks[0].end ==
        std::int64_t{2} * (max_midi_events - 1));

  std::string tracks;
  for (std::size_t i = 0; i < max_midi_tracks; ++i) tracks += bytes_of("MTrk\0\0\0\0");
  const MidiFile many = parse(header(1, max_midi_tracks, 96) + tracks);
  CHECK(many.tracks.size() == max_midi_tracks);
  CHECK(many.warnings.size() == max_midi_warnings);
  CHECK(refusal(header(1, max_midi_tracks, 96) + tracks + bytes_of("MTrk\0\0\0\0")) ==
        "[read_midi] song.mid: byte " + std::to_string(14 + tracks.size()) +
            ": the file has more than 65535 tracks");
}

TEST_CASE("files written by midi.h are read back unchanged", "[music]") {
  PortableRandom random(7);
  for (int round = 0; round < 50; ++round) {
    Song song{1 + random.below(0x7FFF), 4 + random.below(400) * 0.5, {}};
    std::vector<Row> expected;
    const int tracks = random.below(5);
    for (int t = 0; t < tracks; ++t) {
      Track one{std::string(static_cast<std::size_t>(random.below(3)), 'n'),
                random.below(16),
                random.below(128),
                {}};
      std::vector<int> free(128, 0);  // the tick from which each pitch is free
      const int notes = random.below(40);
      for (int i = 0; i < notes; ++i) {
        const int pitch = random.below(128);
        int& from = free[static_cast<std::size_t>(pitch)];
        const Note note{from + random.below(3) * random.below(20000), 1 + random.below(300), pitch,
                        1 + random.below(127)};
        from = note.start + note.duration;
        one.notes.push_back(note);
        expected.emplace_back(note.start, note.duration, pitch, note.velocity, one.channel,
                              one.program, t + 1);
      }
      song.tracks.push_back(one);
    }
    const MidiFile file = parse(midi_bytes(song));
    std::vector<Row> found = rows(file);
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    CHECK(found == expected);
    CHECK(file.warnings.empty());
    CHECK(file.division.ticks_per_quarter == song.ticks_per_quarter);
    CHECK(file.tempo_map().beats(60) == Approx(song.quarters_per_minute).epsilon(1e-5));
    REQUIRE(file.tracks.size() == song.tracks.size() + 1);
    for (std::size_t t = 0; t < song.tracks.size(); ++t) {
      CHECK(file.tracks[t + 1].name == song.tracks[t].name);
    }
  }
}

}  // namespace
