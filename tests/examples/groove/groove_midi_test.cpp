// Grooves from MIDI files: the roles of instruments, the grid, directories, and real files.
#include "examples/groove/groove_midi.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "examples/common/error.h"
#include "examples/groove/groove_augmentation.h"
#include "examples/groove/groove_style.h"
#include "examples/groove/groove_tokens.h"
#include "tests/examples/groove/groove_toys.h"
#include "tests/examples/temp_dir.h"
#include "tests/music/midi_bytes.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT
using namespace stretto::music;              // NOLINT
using namespace stretto::music::testing;     // NOLINT
using stretto::testing::data_path;

Track instrument(const std::string& name, int channel, int program, int notes = 1) {
  Track track{name, channel, program, {}};
  for (int i = 0; i < notes; ++i) track.notes.push_back({10 * i, 10, 40 + i, 80});
  return track;
}

Song read(const Song& song) { return to_song(parse_midi(midi_bytes(song), "x")); }

std::vector<std::string> harmonies(const Song& song) {
  std::vector<std::string> names;
  for (size_t i = harmony_track; i < song.tracks.size(); ++i) names.push_back(song.tracks[i].name);
  return names;
}

std::vector<int> programs(const Song& song) {
  std::vector<int> all;
  for (const Track& track : song.tracks) all.push_back(track.program);
  return all;
}

}  // namespace

TEST_CASE("the instruments of a MIDI file become bass, drums and harmonies", "[examples][groove]") {
  const Song song = read(
      {480,
       96,
       {instrument("Piano", 1, 0, 4), instrument("a", 0, 33, 2), instrument("Kit", 9, 35, 3),
        instrument("Synth Bass", 2, 80, 5), instrument("Bassoon", 3, 70), instrument("b", 4, 39),
        instrument("more drums", 9, 0, 2), instrument("silent", 5, 0, 0)}});
  CHECK(song.tracks[bass_track].name == "Synth Bass");  // the bass with the most notes of three
  CHECK(song.tracks[bass_track].program == 80);
  CHECK(song.tracks[bass_track].notes.size() == 5);
  CHECK(song.tracks[drum_track].notes.size() == 5);
  CHECK(harmonies(song) == std::vector<std::string>{"Piano", "Bassoon"});
  CHECK(song.quarters_per_minute == Approx(96));
  CHECK(missing_part(song).empty());

  const Song groove = with_fullest_harmony(song);
  CHECK(groove.tracks[harmony_track].notes.size() == 4);
  CHECK(programs(groove) == std::vector<int>{80, 0, 0});
  CHECK(with_harmony(song, 1).tracks[harmony_track].program == 70);

  // A track with several channels has several instruments.
  std::string events = bytes_of("\0\xC0\x21\0\xC1\x05");
  for (const int channel : {0, 1, 9}) {
    events += bytes_of("\0") + char(0x90 | channel) + bytes_of("\x30\x50");
    events += bytes_of("\x60") + char(0x80 | channel) + bytes_of("\x30\x50");
  }
  const Song joined = to_song(parse_midi(midi(0, {events}), "x"));
  CHECK(joined.tracks[bass_track].notes.size() == 1);
  CHECK(joined.tracks[drum_track].notes.size() == 1);
  REQUIRE(joined.tracks.size() == 3);
  CHECK(joined.tracks[2].program == 5);
}

TEST_CASE("missing parts of a song are reported", "[examples][groove]") {
  const Track bass = instrument("", 0, 32), drums = instrument("", 9, 0),
              piano = instrument("", 1, 0);
  CHECK(missing_part(read({12, 120, {drums, piano}})) == "no bass");
  CHECK(missing_part(read({12, 120, {bass, piano}})) == "no drums");
  CHECK(missing_part(read({12, 120, {bass, drums}})) == "no harmony");
  CHECK(with_fullest_harmony(read({12, 120, {bass, drums}})).tracks[harmony_track].notes.empty());
  Song song = read({12, 120, {bass, drums, piano}});
  CHECK(missing_part(song).empty());
  song.tracks[2].notes.clear();
  CHECK(missing_part(song) == "no harmony");
}

TEST_CASE("notes are rounded to the nearest twelfth of a beat", "[examples][groove]") {
  const auto grid = [](int quarter, int start, int duration) {
    const Song song{quarter, 80, {{"", 0, 33, {{start, duration, 40, 80}}}}};
    const Note note = read(song).tracks[bass_track].notes.at(0);
    return std::pair(note.start, note.start + note.duration);
  };
  using Pair = std::pair<int, int>;
  CHECK(grid(12, 7, 5) == Pair(7, 12));
  CHECK(grid(480, 480, 240) == Pair(12, 18));
  CHECK(grid(480, 19, 41) ==
        Pair(0, 2));  // a twelfth has 40 ticks: 19 to 0, 60 to 2, as half rounds up
  CHECK(grid(480, 20, 15) == Pair(1, 2));  // both at 1, but a note has a duration
  CHECK(grid(1, 3, 2) == Pair(36, 60));
  CHECK(grid(96, 9, 7) == Pair(1, 2));
  CHECK(grid(32767, 32767, 32767) == Pair(12, 24));

  // SMPTE: 25 frames of 40 ticks per second. A second has two beats, and one beat after the tempo
  // change at one second (1000 ticks).
  const std::string tempo = bytes_of("\x87\x68\xFF\x51\x03\x0F\x42\x40");
  const std::string notes = bytes_of(
      "\x83\x74\x90\x28\x50\x83\x74\x80\x28\x50"    // ticks 500 to 1000: beats 1 to 2
      "\x83\x74\x90\x29\x50\x83\x74\x80\x29\x50");  // ticks 1500 to 2000: beats 2.5 to 3
  const std::string file =
      header(1, 2, 0xE728) + track(tempo) + track(bytes_of("\0\xC0\x21") + notes);
  const std::vector<Note> smpte = to_song(parse_midi(file, "x")).tracks[bass_track].notes;
  REQUIRE(smpte.size() == 2);
  CHECK(same_note(smpte[0], {12, 12, 40, 80}));
  CHECK(same_note(smpte[1], {30, 6, 41, 80}));
}

TEST_CASE("grooves are the same after writing and reading MIDI", "[examples][groove]") {
  PortableRandom random(1);
  Song groove = random_groove(random, 20);
  groove.tracks[bass_track].program = 36;
  groove.tracks[harmony_track].program = 27;
  groove.quarters_per_minute = 100;
  const Song song = read(groove);
  const Song again = with_fullest_harmony(song);
  CHECK(same_notes(again, groove));
  CHECK(programs(again) == programs(groove));
  CHECK(again.quarters_per_minute == Approx(100));
  // Tempos that midi_bytes() would reject are clamped.
  const auto tempo = [](const std::string& microseconds) {
    const std::string events =
        bytes_of("\0\xFF\x51\x03") + microseconds + bytes_of("\0\x90\x28\x50\x60\x80\x28\x50");
    return to_song(parse_midi(midi(0, {events}), "x")).quarters_per_minute;
  };
  CHECK(tempo(bytes_of("\xFF\xFF\xFF")) == 4);
  CHECK(tempo(bytes_of("\0\0\1")) == 1000);
}

TEST_CASE("the tempo of a groove is the one in force at its start", "[examples][groove]") {
  const std::string note = bytes_of("\0\x90\x28\x50\x60\x80\x28\x50");
  const std::string at_60 = bytes_of("\xFF\x51\x03\x0F\x42\x40"),
                    at_200 = bytes_of("\xFF\x51\x03\x04\x93\xE0"), now = bytes_of("\0"),
                    later = bytes_of("\x60");
  const auto tempo = [&](const std::vector<std::string>& tracks) {
    const MidiFile file = parse_midi(midi(1, tracks), "x");
    CHECK(to_song(file).quarters_per_minute == file.tempo_map().quarters_per_minute(0));
    return to_song(file).quarters_per_minute;
  };
  CHECK(tempo({note}) == 120);
  CHECK(tempo({now + at_200 + note}) == Approx(200));
  CHECK(tempo({now + at_60 + now + at_200 + note}) == Approx(200));  // the last one counts
  CHECK(tempo({now + at_60 + now + at_200 + later + at_60 + note}) == Approx(200));
  CHECK(tempo({now + at_60 + note, now + at_200}) == Approx(200));  // from another track
  CHECK(tempo({later + at_200 + note}) == 120);
  CHECK(tempo({later + at_200 + note, now + at_60}) == Approx(60));
}

TEST_CASE("a program change starts another instrument", "[examples][groove]") {
  // Bass, strings, then bass again on one channel; drums are one instrument despite kit changes.
  const auto note = [](int pitch) {
    return bytes_of("\0\x90") + char(pitch) + bytes_of("\x50\x60\x80") + char(pitch) +
           bytes_of("\x50");
  };
  const std::string bass = bytes_of("\0\xC0\x21"), strings = bytes_of("\0\xC0\x30");
  const std::string kits =
      bytes_of("\0\xC9\0\0\x99\x24\x50\x60\x89\x24\x50\0\xC9\x19\0\x99\x26\x50\x60\x89\x26\x50");
  const Song song = to_song(parse_midi(
      midi(1, {bass + note(40) + note(41) + strings + note(60) + bass + note(42), kits}), "x"));
  CHECK(song.tracks[bass_track].program == 33);
  REQUIRE(song.tracks[bass_track].notes.size() == 3);
  CHECK(same_note(song.tracks[bass_track].notes[2], {36, 12, 42, 80}));
  REQUIRE(song.tracks.size() == 3);
  CHECK(song.tracks[2].program == 48);
  REQUIRE(song.tracks[2].notes.size() == 1);
  CHECK(same_note(song.tracks[2].notes[0], {24, 12, 60, 80}));
  CHECK(song.tracks[drum_track].notes.size() == 2);
  CHECK(missing_part(song).empty());
}

TEST_CASE("files that are not grooves are rejected", "[examples][groove]") {
  const TempDir folder;
  const auto error_for = [&](const std::string& bytes) {
    write_file(folder.file("x.mid"), bytes);
    const std::string text = error_of<UsageError>([&] { read_groove(folder.file("x.mid")); });
    REQUIRE(text.rfind(folder.file("x.mid") + ": ", 0) == 0);
    return text.substr(folder.file("x.mid").size() + 2);
  };
  const std::string note = bytes_of("\0\x90\x28\x50\x60\x80\x28\x50");
  CHECK(error_for(midi(1, {""})) == "has no notes");
  CHECK(error_for(midi(2, {note, note})) == "its tracks do not sound together (format 2)");
  CHECK_THAT(error_for("MThd"), Containing("byte "));
  CHECK(error_for("\x1F\x8B\x08 packed") == "byte 0: not a MIDI file: it is gzip-compressed");
  CHECK(error_of<UsageError>([] { to_song(parse_midi(header(2, 0, 96), "x")); }) ==
        "has no tracks (format 2)");
  CHECK(missing_part(to_song(parse_midi(header(1, 0, 96), "x"))) == "no bass");
  // Far more than 2^28 twelfths: deltas of 2^28 − 1 quarter notes.
  const std::string late = header(0, 1, 1) + track(bytes_of("\xFF\xFF\xFF\x7F\x90\x28\x50"
                                                            "\xFF\xFF\xFF\x7F\x80\x28\x50"));
  CHECK(error_for(late) == "a note ends after the limit of 2^28 twelfths of a beat");
}

TEST_CASE("a folder of MIDI files gives its grooves in order", "[examples][groove]") {
  const TempDir folder;
  std::filesystem::create_directories(folder.file("in/deep"));
  PortableRandom random(2);
  const Song groove = random_groove(random, 20);
  const std::string good = midi_bytes(groove);
  Song no_drums = groove;
  no_drums.tracks[drum_track].notes.clear();
  write_midi(folder.file("in/b.mid"), transposed(groove, 1));
  write_midi(folder.file("in/deep/a.MID"), transposed(groove, 2));
  write_file(folder.file("in/a.midi"), good);
  write_file(folder.file("in/c.mid"), midi_bytes(no_drums));
  write_file(folder.file("in/d.mid"), "nonsense");
  write_file(folder.file("in/e.txt"), good);
  std::filesystem::create_directories(folder.file("in/f.mid"));
  const GrooveFolder read = read_groove_folder(folder.file("in"));
  REQUIRE(read.songs.size() == 3);
  for (size_t i = 0; i < 3; ++i)
    CHECK(same_notes(with_fullest_harmony(read.songs[i]), transposed(groove, int(i))));
  CHECK(read.reasons() == "no drums: 1, unreadable: 1");

  std::filesystem::create_directories(folder.file("empty"));
  write_file(folder.file("empty/a.mid"), midi_bytes(empty_groove()));
  CHECK(read_groove_folder(folder.file("empty")).reasons() == "has no notes: 1");

  CHECK(read.damaged.files() == 0);
  write_file(folder.file("in/deep/a.MID"), good.substr(0, good.size() - 2));
  write_file(folder.file("in/c.mid"), read_file(folder.file("in/c.mid")).substr(0, 200));
  const GrooveFolder cut = read_groove_folder(folder.file("in"));
  CHECK(cut.songs.size() == 3);
  CHECK_THAT(cut.damaged.text(), Containing("1 file is damaged and was read as far as possible: " +
                                            folder.file("in/deep/a.MID") + " (byte "));
  write_file(folder.file("in/c.mid"), midi_bytes(no_drums));

  const GrooveFolder later = read_groove_folder(folder.file("in"), 2);
  CHECK(same_notes(with_fullest_harmony(later.songs.at(0)), without_bars(groove, 2)));
  CHECK(read_groove_folder(folder.file("in"), 20).reasons() == "no bass: 4, unreadable: 1");
  CHECK(error_of<UsageError>([&] { read_groove_folder(folder.file("none")); }) ==
        "cannot read the folder " + folder.file("none") + ": No such file or directory");
}

TEST_CASE("the published prompts and continuations are grooves", "[examples][groove][data]") {
  const std::string packed = data_path("midi/groove_prompts.tar.gz");
  STRETTO_NEEDS_DATA(packed);
  const TempDir folder;
  REQUIRE(std::system(("tar xzf '" + packed + "' -C '" + folder.str() + "'").c_str()) == 0);
  const std::string root = folder.file("groove_prompts/");
  int files = 0, continued = 0, unnamed = 0;
  std::map<std::string, double> first, last;  // similarity by model
  for (const auto& entry : std::filesystem::directory_iterator(root + "prompts")) {
    const std::string name = entry.path().stem().string();
    INFO(name);
    const Song prompt = with_fullest_harmony(read_groove(entry.path().string()));
    ++files;
    CHECK(end_of(prompt) <= 95);
    CHECK(same_notes(first_bars(prompt, 2), prompt));
    CHECK(same_notes(to_groove(to_tokens(prompt)), prompt));
    for (const char* model : {"ape", "sinespe", "convspe"}) {
      std::vector<Song> written;
      for (int i = 0; i < 3; ++i) {
        const std::string file =
            root + "continuations/" + model + "/" + name + "_cont_" + std::to_string(i) + ".mid";
        const Song song = read_groove(file);
        ++files;
        unnamed += song.tracks.size() == 4;
        written.push_back(with_fullest_harmony(song));
        CHECK(same_notes(to_groove(to_tokens(written.back())), written.back()));
        bool all = true;
        for (size_t track = 0; track < 3; ++track)
          for (const Note& note : prompt.tracks[track].notes)
            all = all && std::any_of(written.back().tracks[track].notes.begin(),
                                     written.back().tracks[track].notes.end(),
                                     [&](const Note& n) { return same_note(n, note); });
        continued += all;
      }
      const StyleSimilarity s = style_similarity(prompt, written);
      first[model] += s.mean_onset(0) + s.mean_time_pitch(0);
      last[model] += s.mean_onset(3) + s.mean_time_pitch(3);
    }
  }
  // As in the paper: similarity of style decreases with time, faster with absolute positions.
  for (const char* model : {"ape", "sinespe", "convspe"}) CHECK(first[model] > last[model]);
  for (const char* model : {"sinespe", "convspe"}) CHECK(last[model] > last["ape"]);
  CHECK(files == 500);
  CHECK(continued == 450);
  CHECK(unnamed == 1);  // its bass is a piano; only the prompt names tracks, where it is silent
}
