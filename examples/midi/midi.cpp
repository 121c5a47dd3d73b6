#include "examples/midi/midi.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "examples/common/file.h"

namespace stretto::examples {
namespace {

constexpr int max_variable_length = 0x0FFFFFFF;

void append_big_endian(std::string& bytes, uint32_t value, int count) {
  for (int shift = 8 * (count - 1); shift >= 0; shift -= 8) bytes += char(value >> shift & 0xFF);
}

/// Appends seven bits per byte, most significant first, with the top bit set in all but the last.
void append_variable_length(std::string& bytes, int value) {
  for (int shift = 21; shift > 0; shift -= 7)
    if (value >> shift != 0) bytes += char((value >> shift & 0x7F) | 0x80);
  bytes += char(value & 0x7F);
}

void append_meta(std::string& bytes, int type, const std::string& data, int delta = 0) {
  append_variable_length(bytes, delta);
  bytes += '\xFF';
  bytes += char(type);
  append_variable_length(bytes, int(data.size()));
  bytes += data;
}

void append_chunk(std::string& file, const std::string& type, const std::string& data) {
  file += type;
  append_big_endian(file, uint32_t(data.size()), 4);
  file += data;
}

void require(bool good, const std::string& message) {
  if (!good) throw std::invalid_argument("MIDI: " + message);
}

void validate(const Track& track, size_t index) {
  const std::string place = "track " + std::to_string(index) + " ";
  require(track.name.size() <= 1000, place + "has a name of more than 1000 bytes");
  require(track.channel >= 0 && track.channel <= 15,
          place + "has channel " + std::to_string(track.channel) + "; expected 0 to 15");
  require(track.program >= 0 && track.program <= 127,
          place + "has program " + std::to_string(track.program) + "; expected 0 to 127");
  for (size_t i = 0; i < track.notes.size(); ++i) {
    const Note& note = track.notes[i];
    const auto check = [&](bool good, const char* what, int value, const char* expected) {
      if (good) return;
      require(false, place + "note " + std::to_string(i) + " has " + what + " " +
                         std::to_string(value) + "; expected " + expected);
    };
    check(note.start >= 0, "start", note.start, "0 or more");
    check(note.duration > 0, "duration", note.duration, "1 or more");
    check(note.start <= max_variable_length - note.duration, "start", note.start,
          "an end before tick 2^28");
    check(note.pitch >= 0 && note.pitch <= 127, "pitch", note.pitch, "0 to 127");
    check(note.velocity >= 1 && note.velocity <= 127, "velocity", note.velocity, "1 to 127");
  }
}

struct Event {
  int tick;
  bool on;
  int pitch;
  int velocity;
};

/// Note-ons and note-offs by time; at one tick note-offs come first, so that a repeated
/// pitch sounds again.
std::vector<Event> events_of(const Track& track) {
  std::vector<Event> events;
  for (const Note& note : track.notes) {
    events.push_back({note.start, true, note.pitch, note.velocity});
    events.push_back({note.start + note.duration, false, note.pitch, 0});
  }
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.tick, a.on, a.pitch) < std::tie(b.tick, b.on, b.pitch);
  });
  return events;
}

std::string tempo_bytes(double quarters_per_minute) {
  const double microseconds = 60e6 / quarters_per_minute;
  require(microseconds >= 1 && microseconds <= 0xFFFFFF, "quarters_per_minute is " +
                                                             std::to_string(quarters_per_minute) +
                                                             "; expected 3.58 to 60000000");
  std::string bytes;
  append_big_endian(bytes, uint32_t(std::lround(microseconds)), 3);
  return bytes;
}

std::string tempo_track(const Song& song) {
  std::string bytes;
  append_meta(bytes, 0x58, std::string("\x04\x02\x18\x08", 4));  // 4/4
  append_meta(bytes, 0x51, tempo_bytes(song.quarters_per_minute));
  int tick = 0;
  for (const TempoMark& mark : song.tempos) {
    require(mark.tick > tick && mark.tick <= max_variable_length,
            "a tempo change is at tick " + std::to_string(mark.tick) +
                "; expected a tick after the previous change and below 2^28");
    append_meta(bytes, 0x51, tempo_bytes(mark.quarters_per_minute), mark.tick - tick);
    tick = mark.tick;
  }
  append_meta(bytes, 0x2F, "");
  return bytes;
}

std::string note_track(const Track& track) {
  std::string bytes;
  append_meta(bytes, 0x03, track.name);
  append_variable_length(bytes, 0);
  bytes += char(0xC0 | track.channel);
  bytes += char(track.program);
  int tick = 0;
  for (const Event& event : events_of(track)) {
    append_variable_length(bytes, event.tick - tick);
    tick = event.tick;
    bytes += char((event.on ? 0x90 : 0x80) | track.channel);
    bytes += char(event.pitch);
    bytes += char(event.velocity);
  }
  append_meta(bytes, 0x2F, "");
  return bytes;
}

}  // namespace

std::string midi_bytes(const Song& song) {
  require(
      song.ticks_per_quarter >= 1 && song.ticks_per_quarter <= 0x7FFF,
      "ticks_per_quarter is " + std::to_string(song.ticks_per_quarter) + "; expected 1 to 32767");
  require(song.tracks.size() < 0xFFFF, "the song has more than 65534 tracks");
  for (size_t i = 0; i < song.tracks.size(); ++i) validate(song.tracks[i], i);

  const std::string tempo = tempo_track(song);
  std::string header;
  append_big_endian(header, 1, 2);  // format: tracks that sound together
  append_big_endian(header, uint32_t(song.tracks.size() + 1), 2);
  append_big_endian(header, uint32_t(song.ticks_per_quarter), 2);
  std::string file;
  append_chunk(file, "MThd", header);
  append_chunk(file, "MTrk", tempo);
  for (const Track& track : song.tracks) append_chunk(file, "MTrk", note_track(track));
  return file;
}

void write_midi(const std::string& path, const Song& song) {
  write_file_atomically(path, midi_bytes(song));
}

}  // namespace stretto::examples
