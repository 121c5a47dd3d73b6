#include "music/midi_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"

namespace stretto::music {
namespace {

constexpr int max_variable_length = 0x0FFFFFFF;

void append_big_endian(std::string& bytes, uint32_t value, int count) {
  for (int shift = 8 * (count - 1); shift >= 0; shift -= 8) bytes += char(value >> shift & 0xFF);
}

/// Appends seven bits per byte, most significant first, with the top bit set in all but the last.
void append_variable_length(std::string& bytes, int64_t value) {
  for (int shift = 21; shift > 0; shift -= 7)
    if (value >> shift != 0) bytes += char((value >> shift & 0x7F) | 0x80);
  bytes += char(value & 0x7F);
}

void append_chunk(std::string& file, const std::string& type, const std::string& data) {
  file += type;
  append_big_endian(file, uint32_t(data.size()), 4);
  file += data;
}

template <class... Parts>
void require(bool good, const Parts&... parts) {
  check(good, "write_midi", parts...);
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
  for (const ControlMark& control : track.controls) {
    const std::string name = place + "has a control ";
    require(control.tick >= 0 && control.tick <= max_variable_length, name, "at tick ",
            control.tick, "; expected 0 to 2^28 - 1");
    require(control.controller >= 0 && control.controller <= 119, name, control.controller,
            "; expected 0 to 119");
    require(control.value >= 0 && control.value <= 127, name, "of value ", control.value,
            "; expected 0 to 127");
  }
  for (const BendMark& bend : track.bends) {
    require(bend.tick >= 0 && bend.tick <= max_variable_length, place, "has a bend at tick ",
            bend.tick, "; expected 0 to 2^28 - 1");
    require(bend.value >= -8192 && bend.value <= 8191, place, "has a bend of ", bend.value,
            "; expected -8192 to 8191");
  }
}

/// The events of one track, which may be added in any order.
class TrackEvents {
 public:
  /// The order of events at one tick.
  enum Order { names, ends, settings, starts };

  void add(int64_t tick, Order order, std::string bytes) {
    events_.push_back({tick, order, std::move(bytes)});
  }
  void add_meta(int64_t tick, int type, const std::string& data) {
    std::string bytes{'\xFF', char(type)};
    append_variable_length(bytes, int64_t(data.size()));
    add(tick, names, bytes + data);
  }

  /// Returns the track with an End of Track at `end`, or at the last event if that is later.
  std::string bytes(int64_t end) {
    std::stable_sort(events_.begin(), events_.end(), [](const Timed& a, const Timed& b) {
      return std::tie(a.tick, a.order) < std::tie(b.tick, b.order);
    });
    std::string track;
    int64_t now = 0;
    const auto append = [&](int64_t tick, const std::string& event) {
      for (; tick - now > max_variable_length; now += max_variable_length) {
        append_variable_length(track, max_variable_length);
        track += std::string("\xFF\x01\0", 3);  // an empty text: no delta time is longer
      }
      append_variable_length(track, tick - now);
      now = tick;
      track += event;
    };
    for (const Timed& event : events_) append(event.tick, event.bytes);
    append(std::max(now, end), std::string("\xFF\x2F\0", 3));
    return track;
  }

 private:
  struct Timed {
    int64_t tick;
    Order order;
    std::string bytes;
  };
  std::vector<Timed> events_;
};

std::string message(int status, int first, int second) {
  return {char(status), char(first), char(second)};
}

std::string control_bytes(int channel, int controller, int value) {
  return message(0xB0 | channel, controller, value);
}

std::string bend_bytes(int channel, int value) {
  return message(0xE0 | channel, (value + 8192) & 0x7F, (value + 8192) >> 7);
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

std::string meter_bytes(int numerator, int denominator) {
  return {char(numerator), char(std::countr_zero(unsigned(denominator))), 24, 8};
}

bool is_meter(int numerator, int denominator) {
  return numerator >= 1 && numerator <= 255 && denominator > 0 && denominator <= 1 << 15 &&
         std::has_single_bit(unsigned(denominator));
}

std::string tempo_track(const Song& song) {
  TrackEvents events;
  if (song.meters.empty() || song.meters[0].tick > 0) events.add_meta(0, 0x58, meter_bytes(4, 4));
  for (size_t i = 0; i < song.meters.size(); ++i) {
    const MeterMark& mark = song.meters[i];
    require(mark.tick > (i > 0 ? song.meters[i - 1].tick : -1) && mark.tick <= max_variable_length,
            "a meter is at tick " + std::to_string(mark.tick) +
                "; expected a tick after the previous meter and below 2^28");
    require(is_meter(mark.numerator, mark.denominator),
            "a meter is " + std::to_string(mark.numerator) + "/" +
                std::to_string(mark.denominator) +
                "; expected 1 to 255 beats of a power of two up to 32768");
    events.add_meta(mark.tick, 0x58, meter_bytes(mark.numerator, mark.denominator));
  }
  events.add_meta(0, 0x51, tempo_bytes(song.quarters_per_minute));
  int tick = 0;
  for (const TempoMark& mark : song.tempos) {
    require(mark.tick > tick && mark.tick <= max_variable_length,
            "a tempo change is at tick " + std::to_string(mark.tick) +
                "; expected a tick after the previous change and below 2^28");
    events.add_meta(mark.tick, 0x51, tempo_bytes(mark.quarters_per_minute));
    tick = mark.tick;
  }
  return events.bytes(0);
}

// The tracks in the order in which a player merges them: by tick, then track. A track sets its
// program at tick 0, and before a note if another track has changed its channel's program since.
std::vector<TrackEvents> note_tracks(const Song& song) {
  struct Timed {
    int tick;
    size_t track;
    const Note* note;  // null: the begin of the track
  };
  std::vector<Timed> all;
  for (size_t i = 0; i < song.tracks.size(); ++i) {
    all.push_back({0, i, nullptr});
    for (const Note& note : song.tracks[i].notes) all.push_back({note.start, i, &note});
  }
  std::stable_sort(all.begin(), all.end(), [](const Timed& a, const Timed& b) {
    const auto order = [](const Timed& t) {  // at one tick from the lowest pitch up
      return std::tuple(t.tick, t.track, t.note ? t.note->pitch : -1);
    };
    return order(a) < order(b);
  });
  std::vector<TrackEvents> events(song.tracks.size());
  std::array<int, 16> programs{};  // by channel
  for (const Timed& at : all) {
    const Track& track = song.tracks[at.track];
    TrackEvents& to = events[at.track];
    const std::string set_program{char(0xC0 | track.channel), char(track.program)};
    const bool changed =
        std::exchange(programs[size_t(track.channel)], track.program) != track.program;
    if (!at.note) {
      to.add_meta(0, 0x03, track.name);
      to.add(0, TrackEvents::names, set_program);
      for (const ControlMark& c : track.controls)
        to.add(c.tick, TrackEvents::settings, control_bytes(track.channel, c.controller, c.value));
      for (const BendMark& bend : track.bends)
        to.add(bend.tick, TrackEvents::settings, bend_bytes(track.channel, bend.value));
      continue;
    }
    if (changed) to.add(at.tick, TrackEvents::starts, set_program);
    to.add(at.tick, TrackEvents::starts,
           message(0x90 | track.channel, at.note->pitch, at.note->velocity));
    to.add(at.tick + at.note->duration, TrackEvents::ends,
           message(0x80 | track.channel, at.note->pitch, 0));
  }
  return events;
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
  for (TrackEvents& track : note_tracks(song)) append_chunk(file, "MTrk", track.bytes(0));
  return file;
}

namespace {

/// Throws for a value outside of `least` … `most`.
void require_value(const char* element, size_t index, const char* what, int64_t value,
                   int64_t least, int64_t most) {
  require(value >= least && value <= most, element, " ", int64_t(index), " has ", what, " ", value,
          "; expected ", least, " to ", most);
}

void validate(const MidiFile& file) {
  constexpr int64_t last = int64_t{1} << 50;
  require(file.format >= 0 && file.format <= 2, "format ", file.format, "; expected 0 to 2");
  require(file.tracks.size() <= 0xFFFF && (file.format != 0 || file.tracks.size() <= 1), "format ",
          file.format, " with ", int64_t(file.tracks.size()), " tracks");
  require(file.tempo_maps.size() == (file.format == 2 ? file.tracks.size() : 1), "format ",
          file.format, " with ", int64_t(file.tempo_maps.size()),
          " tempo maps; expected one, or in format 2 one per track");
  const TempoMap division(file.division);  // throws for a division out of range
  for (const TempoMap& map : file.tempo_maps) {
    const std::vector<TempoChange>& changes = map.changes();
    require(changes.empty() || !file.tracks.empty(), "tempos without a track");
    require(changes.empty() || changes.back().tick <= last, "a tempo at tick ",
            changes.empty() ? 0 : changes.back().tick, "; expected at most 2^50");
  }
  const int64_t tracks = int64_t(file.tracks.size());
  for (size_t i = 0; i < file.tracks.size(); ++i) {
    require_value("track", i, "an end", file.tracks[i].end, 0, last);
    require_value("track", i, "a name length", int64_t(file.tracks[i].name.size()), 0,
                  max_variable_length);
  }
  for (size_t i = 0; i < file.notes.size(); ++i) {
    const MidiNote& note = file.notes[i];
    require_value("note", i, "start", note.start, 0, last);
    require_value("note", i, "duration", note.duration, 0, last);
    require_value("note", i, "pitch", note.pitch, 0, 127);
    require_value("note", i, "velocity", note.velocity, 1, 127);
    require_value("note", i, "channel", note.channel, 0, 15);
    require_value("note", i, "program", note.program, 0, 127);
    require_value("note", i, "track", note.track, 0, tracks - 1);
  }
  const auto placed = [&](const char* element, const auto& all) {
    for (size_t i = 0; i < all.size(); ++i) {
      require_value(element, i, "tick", all[i].tick, 0, last);
      require_value(element, i, "track", all[i].track, 0, tracks - 1);
    }
  };
  placed("time signature", file.time_signatures);
  placed("key signature", file.key_signatures);
  placed("control", file.controls);
  placed("pitch bend", file.pitch_bends);
  for (size_t i = 0; i < file.time_signatures.size(); ++i) {
    const TimeSignature& meter = file.time_signatures[i];
    require_value("time signature", i, "numerator", meter.numerator, 1, 255);
    require(meter.denominator > 0 && meter.denominator <= 1 << 15 &&
                std::has_single_bit(unsigned(meter.denominator)),
            "time signature ", int64_t(i), " has denominator ", meter.denominator,
            "; expected a power of two up to 32768");
  }
  for (size_t i = 0; i < file.key_signatures.size(); ++i)
    require_value("key signature", i, "sharps", file.key_signatures[i].sharps, -7, 7);
  for (size_t i = 0; i < file.controls.size(); ++i) {
    require_value("control", i, "channel", file.controls[i].channel, 0, 15);
    require_value("control", i, "controller", file.controls[i].controller, 0, 127);
    require_value("control", i, "value", file.controls[i].value, 0, 127);
  }
  for (size_t i = 0; i < file.pitch_bends.size(); ++i) {
    require_value("pitch bend", i, "channel", file.pitch_bends[i].channel, 0, 15);
    require_value("pitch bend", i, "value", file.pitch_bends[i].value, -8192, 8191);
  }
}

// A note that sounds at the end of all notes of its channel would be read back shorter.
void check_silences(const MidiFile& file) {
  std::map<std::pair<int, int>, std::vector<int64_t>>
      silences;  // by channel and, in format 2, track
  const auto key = [&](const auto& x) {
    return std::pair(x.channel, file.format == 2 ? x.track : 0);
  };
  for (const ControlChange& c : file.controls)
    if (ends_notes(c.controller)) silences[key(c)].push_back(c.tick);
  for (auto& [place, ticks] : silences) std::sort(ticks.begin(), ticks.end());
  for (size_t i = 0; i < file.notes.size() && !silences.empty(); ++i) {
    const MidiNote& note = file.notes[i];
    const std::vector<int64_t>& ticks = silences[key(note)];
    const auto next = std::upper_bound(ticks.begin(), ticks.end(), note.start);
    require(next == ticks.end() || *next >= note.start + note.duration, "note ", int64_t(i),
            " sounds from tick ", note.start, " for ", note.duration,
            ", but a controller ends the ", "notes of its channel at tick ",
            next == ticks.end() ? 0 : *next);
  }
}

void add_tempos(const MidiFile& file, std::vector<TrackEvents>& tracks) {
  for (size_t i = 0; i < std::min(tracks.size(), file.tempo_maps.size()); ++i)
    for (const TempoChange& change : file.tempo_maps[i].changes()) {
      std::string data;
      append_big_endian(data, uint32_t(change.microseconds_per_quarter), 3);
      tracks[i].add_meta(change.tick, 0x51, data);
    }
}

void add_signatures(const MidiFile& file, std::vector<TrackEvents>& tracks) {
  for (const TimeSignature& meter : file.time_signatures) {
    tracks[size_t(meter.track)].add_meta(meter.tick, 0x58,
                                         meter_bytes(meter.numerator, meter.denominator));
  }
  for (const KeySignature& key : file.key_signatures)
    tracks[size_t(key.track)].add_meta(key.tick, 0x59, {char(key.sharps), char(key.minor)});
}

void add_controls(const MidiFile& file, std::vector<TrackEvents>& tracks) {
  for (const ControlChange& c : file.controls)
    tracks[size_t(c.track)].add(c.tick, TrackEvents::settings,
                                control_bytes(c.channel, c.controller, c.value));
  for (const PitchBend& bend : file.pitch_bends)
    tracks[size_t(bend.track)].add(bend.tick, TrackEvents::settings,
                                   bend_bytes(bend.channel, bend.value));
}

// A program is set before the first note of a channel in a track, and before a note if the last
// program of its channel is another one: in its track, for read_midi(), or in any, for players.
void add_notes(const MidiFile& file, std::vector<TrackEvents>& tracks) {
  std::vector<const MidiNote*> by_start;
  for (const MidiNote& note : file.notes) by_start.push_back(&note);
  std::stable_sort(by_start.begin(), by_start.end(), [](const MidiNote* a, const MidiNote* b) {
    return std::tie(a->start, a->track) < std::tie(b->start, b->track);
  });
  std::map<std::pair<int, int>, int> programs;  // by track and channel
  std::array<int, 16> last{};                   // by channel
  for (const MidiNote* each : by_start) {
    const MidiNote& note = *each;
    TrackEvents& events = tracks[size_t(note.track)];
    const auto [program, first] = programs.try_emplace({note.track, note.channel}, note.program);
    const bool other = std::exchange(program->second, note.program) != note.program;
    const bool changed = std::exchange(last[size_t(note.channel)], note.program) != note.program;
    if (first || other || (changed && file.format != 2))
      events.add(note.start, TrackEvents::starts, {char(0xC0 | note.channel), char(note.program)});
    events.add(note.start, TrackEvents::starts,
               message(0x90 | note.channel, note.pitch, note.velocity));
    const auto order = note.duration > 0 ? TrackEvents::ends : TrackEvents::starts;
    events.add(note.start + note.duration, order, message(0x80 | note.channel, note.pitch, 0));
  }
}

int division_bytes(const MidiDivision& d) {
  if (d.ticks_per_quarter != 0) return d.ticks_per_quarter;
  return (256 - d.frames_per_second) << 8 | d.ticks_per_frame;
}

}  // namespace

std::string midi_bytes(const MidiFile& file) {
  validate(file);
  check_silences(file);
  std::vector<TrackEvents> tracks(file.tracks.size());
  for (size_t i = 0; i < tracks.size(); ++i)
    if (!file.tracks[i].name.empty()) tracks[i].add_meta(0, 0x03, file.tracks[i].name);
  add_tempos(file, tracks);
  add_signatures(file, tracks);
  add_controls(file, tracks);
  add_notes(file, tracks);

  std::string header;
  append_big_endian(header, uint32_t(file.format), 2);
  append_big_endian(header, uint32_t(tracks.size()), 2);
  append_big_endian(header, uint32_t(division_bytes(file.division)), 2);
  std::string bytes;
  append_chunk(bytes, "MThd", header);
  for (size_t i = 0; i < tracks.size(); ++i)
    append_chunk(bytes, "MTrk", tracks[i].bytes(file.tracks[i].end));
  return bytes;
}

void write_midi(const std::string& path, const Song& song) {
  write_atomically(path, midi_bytes(song));
}

void write_midi(const std::string& path, const MidiFile& file) {
  write_atomically(path, midi_bytes(file));
}

}  // namespace stretto::music
