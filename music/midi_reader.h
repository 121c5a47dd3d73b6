// Reading Standard MIDI files (MIDI 1.0 detailed specification, "Standard MIDI Files 1.0").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "midi_file.h"

namespace stretto::music {

/// The limits of a file: bytes, events and tracks.
/// @{
inline constexpr size_t max_midi_bytes = size_t{64} << 20;  ///< 64 MiB
inline constexpr size_t max_midi_events = 4'000'000;        ///< of all tracks
inline constexpr size_t max_midi_tracks = 65535;            ///< as in the header
/// @}

/// Reads the file at `path`, format 0, 1 or 2, also in a RIFF wrapper (RMID).
///
/// A note-off, or a note-on of velocity 0, ends the earliest sounding note of its track, channel
/// and pitch. If no such note sounds, it ends a note of its channel and pitch that has no end in
/// its own track (not in format 2), else it is ignored. All sound off and all notes off
/// (controllers 120 and 123 to 127) end the notes of their channel, in any track (in format 2, in
/// their own). Notes without an end last until the last event of their track and cause a warning. A
/// note's program is the last program set on its channel in its track. If its track has not set one
/// yet, it is the last program set on its channel in any track up to the note's start (not in
/// format 2), else 0.
/// Unknown chunks, meta events and system exclusive data are skipped.
///
/// Missing and surplus bytes cause warnings: truncated files and tracks, tracks without End of
/// Track, bytes after it, wrong chunk lengths and numbers of tracks, meta events of a wrong
/// length or value (they are skipped), and other defects of events. Throws Error "[read_midi] PATH:
/// byte OFFSET: REASON", in one line, for a file that has no header or an invalid header, has none
/// of the tracks it announces, contains wrong bytes or exceeds one of the limits above; and Error
/// for a file that cannot be read. Memory is proportional to the actual contents of the file,
/// whatever its header claims.
MidiFile read_midi(const std::string& path);

/// Parses the bytes of a file as read_midi() does; `path` is used only in errors.
MidiFile parse_midi(std::string_view bytes, const std::string& path);

}  // namespace stretto::music
