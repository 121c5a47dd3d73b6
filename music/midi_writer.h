// Writing Standard MIDI files: a song of tracks of notes, or the whole content of a file.
#pragma once

#include <string>
#include <vector>

#include "midi_file.h"

namespace stretto::music {

/// A note of a Song. Times are in ticks from the start of the song.
struct Note {
  int start;     ///< 0 or more
  int duration;  ///< 1 or more
  int pitch;     ///< 0 to 127
  int velocity;  ///< 1 to 127
};

/// A controller set to a value, such as the sustain pedal (64; down from value 64 on).
struct ControlMark {
  int tick;        ///< 0 or more
  int controller;  ///< 0 to 119
  int value;       ///< 0 to 127
};

/// The bend of a track's channel, from a tick on.
struct BendMark {
  int tick;   ///< 0 or more
  int value;  ///< −8192 to 8191; 0 is none
};

/// The notes of one instrument. Tracks may share a channel: before each of their notes the channel
/// is set to the track's program if another track has changed it.
struct Track {
  std::string name;                        ///< at most 1000 bytes
  int channel;                             ///< 0 to 15; 9 is the drums
  int program;                             ///< the General MIDI instrument, 0 to 127
  std::vector<Note> notes;                 ///< in any order
  std::vector<ControlMark> controls = {};  ///< in any order; of one tick in this order
  std::vector<BendMark> bends = {};        ///< likewise
};

/// The tempo from a tick on.
struct TempoMark {
  int tick;                    ///< after that of the previous mark
  double quarters_per_minute;  ///< 3.58 to 60,000,000
};

/// The meter from a tick on.
struct MeterMark {
  int tick;         ///< after that of the previous mark
  int numerator;    ///< 1 to 255
  int denominator;  ///< a power of two, 1 to 32768
};

/// Music to be written, in 4/4 time up to the first of `meters`. If notes of one pitch and channel
/// overlap in a track, they are read back with the ends in the order of their starts.
struct Song {
  int ticks_per_quarter = 480;         ///< 1 to 32767
  double quarters_per_minute = 80;     ///< the tempo at the start
  std::vector<Track> tracks;           ///< the instruments
  std::vector<TempoMark> tempos = {};  ///< tempo changes, in ascending order of ticks
  std::vector<MeterMark> meters = {};  ///< meters, in ascending order of ticks
};

/// Returns the bytes of `song` as a format 1 Standard MIDI file: a track with the tempo, then the
/// song's tracks. Notes may be in any order. Throws Error "[write_midi] …", naming track and
/// note, for a value out of range.
std::string midi_bytes(const Song& song);

/// Returns the bytes of `file`, in its own format and division. parse_midi() of these bytes
/// returns the same notes, tempos, signatures, controls, pitch bends, and names and ends of
/// tracks, except that in format 0 and 1 all tempos are in the first track, which then ends with
/// the last one or later. Times in seconds are not used. Overlapping notes of one pitch in a track
/// and channel must end in the order in which they start, because a note-off ends the earliest
/// one. A note that sounds at a controller that ends the notes of its channel (120, 123 to 127) is
/// refused.
/// A file with more than the limits of read_midi() is written, but cannot be read. Throws
/// Error "[write_midi] …", naming the element, for a value out of range; ticks are at most 2^50.
std::string midi_bytes(const MidiFile& file);

/// Writes the bytes of a song or file, replacing the file at `path` atomically. Throws as
/// midi_bytes() and write_atomically() (core/atomic_file.h) do.
/// @{
void write_midi(const std::string& path, const Song& song);
void write_midi(const std::string& path, const MidiFile& file);
/// @}

}  // namespace stretto::music
