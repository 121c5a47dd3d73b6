// The fuzz target of the MIDI reader.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "examples/common/error.h"
#include "examples/groove/groove_midi.h"
#include "music/midi_events.h"
#include "music/midi_reader.h"
#include "music/performance.h"
#include "music/remi.h"
#include "music/tokenizer.h"
#include "tests/fuzz/mutate.h"
#include "tests/music/midi_bytes.h"

namespace stretto::testing {
namespace {

using namespace stretto::examples;        // NOLINT
using namespace stretto::music;           // NOLINT
using namespace stretto::music::testing;  // NOLINT

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

bool within(int value, int first, int last) { return value >= first && value <= last; }

/// Checks that hold for every accepted file of `size` bytes.
void check_file(const MidiFile& file, std::size_t size) {
  const std::size_t tracks = file.tracks.size();
  require(within(file.format, 0, 2), "format");
  require(file.tempo_maps.size() == (file.format == 2 ? tracks : 1), "tempo maps");
  require(8 * tracks <= size, "more tracks than bytes");
  require(3 * (file.notes.size() + file.controls.size()) <= size, "more events than bytes");
  require(file.warnings.size() <= max_midi_warnings, "too many warnings");
  for (const MidiNote& note : file.notes) {
    require(note.track >= 0 && static_cast<std::size_t>(note.track) < tracks, "track");
    require(within(note.pitch, 0, 127) && within(note.velocity, 1, 127) &&
                within(note.channel, 0, 15) && within(note.program, 0, 127),
            "a note out of range");
    require(note.start >= 0 && note.duration >= 0, "negative ticks of a note");
    const MidiTrack& track = file.tracks[static_cast<std::size_t>(note.track)];
    require(note.start + note.duration <= track.end, "a note after the end of its track");
    require(note.start_seconds >= 0 && note.seconds >= 0, "negative seconds of a note");
    require(note.start_seconds + note.seconds <= file.seconds() * (1 + 1e-12), "the last second");
  }
  for (std::size_t i = 1; i < file.notes.size(); ++i) {
    const MidiNote& a = file.notes[i - 1];
    const MidiNote& b = file.notes[i];
    const bool next_track = file.format == 2 && a.track < b.track;
    require(next_track || a.start <= b.start, "the order of notes");
  }
  for (std::size_t i = 0; i < tracks; ++i) {
    const TempoMap& map = file.tempo_map(static_cast<int>(i));
    const auto end = static_cast<double>(file.tracks[i].end);
    // Tempos differ by up to 2^24 and a double has 53 bits: each change can cost 2^-29 of the
    // ticks.
    const double slack = std::ldexp(static_cast<double>(map.changes().size() + 1), -28);
    require(std::abs(map.tick(map.seconds(end)) - end) <= slack * (1 + end), "ticks and seconds");
    require(map.beats(map.seconds(end)) >= 0, "beats");
  }
}

/// Converts an accepted file as the programs do. Each conversion must succeed or reject the file,
/// and every note must have a duration.
void check_uses(const MidiFile& file) {
  try {
    const Song song = to_song(file);
    require(song.quarters_per_minute >= 4 && song.quarters_per_minute <= 1000, "a tempo");
    std::size_t notes = 0;
    for (const Track& track : song.tracks) notes += track.notes.size();
    require(notes <= file.notes.size(), "more notes than the file has");
  } catch (const UsageError&) {
  }
  try {
    tokenizer("remi")->check_file(file, "input");
    const RemiSong song = quantized(file);
    const Song written = to_song(song);
    for (const Note& note : written.tracks[0].notes)
      require(note.duration >= 59, "a note that is too short");
    if (written.tempos.empty() || written.tempos.back().tick < 1 << 28)
      require(quantized(parse_midi(midi_bytes(written), "copy")).notes == song.notes,
              "a copy differs");
    for (const bool pedal : {false, true})
      for (const PianoNote& note : performed(file, pedal))
        require(note.duration >= 1 && note.start + note.duration <= 100 * (6 * 3600 + 61),
                "a note");
  } catch (const Error&) {
  }
}

bool run(std::string_view input) {
  try {
    const MidiFile file = parse_midi(input, "input");
    check_file(file, input.size());
    check_uses(file);
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.rfind("[read_midi] input: byte ", 0) == 0, "an error without path and offset");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    return false;
  }
}

}  // namespace

FuzzTarget midi_target() {
  const std::string conductor = bytes_of("\0\xFF\x51\x03\x07\xA1\x20\x60\xFF\x51\x03\x0F\x42\x40") +
                                bytes_of("\0\xFF\x58\x04\x03\x02\x18\x08\0\xFF\x59\x02\xFE\1");
  const std::string melody = bytes_of("\0\xFF\x03\x01m\0\xC0\x05\0\x90\x3C\x40\x30\x3C\0") +
                             bytes_of("\x81\x40\x3E\x40\0\xB0\x40\x7F\x30\x80\x3E\x40");
  const std::string chords =
      bytes_of("\0\xF0\x03\x43\x12\xF7\0\x91\x3C\x20\x05\x3C\x30\x06\x3C\0") +
      bytes_of("\x07\xE1\0\x40\x08\x3C\0\0\xD1\x05\0\xFF\x7F\x01x");
  const std::string multitrack = midi(1, {conductor, melody, chords});
  const std::string riff = "RIFF" + std::string(4, '\1') + "RMIDdata" +
                           static_cast<char>(multitrack.size()) + std::string(3, '\0') + multitrack;
  return {run,
          {midi(0, {melody}), multitrack, midi(2, {conductor + melody, chords}), riff,
           header(1, 2, 0xE728) + track(melody) + chunk("Junk", "junk") + track(chords)},
          {"MThd", "MTrk", "RIFF", "RMID", "data", kEnd, bytes_of("\xFF\x51\x03"),
           bytes_of("\xFF\x58\x04"), bytes_of("\xFF\x59\x02"), bytes_of("\xFF\xFF\xFF\x7F"),
           bytes_of("\0\x90\x3C\x40"), bytes_of("\0\x80\x3C\0")}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::midi_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
