// Parses the events of one MIDI track.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "midi_file.h"

namespace stretto::music {

/// The bytes of a file, and its errors and warnings.
struct MidiSource {
  std::string_view bytes;
  const std::string& path;
  std::vector<std::string>& warnings;  // at most max_midi_warnings

  /// Throws Error "[read_midi] PATH: byte OFFSET: REASON".
  [[noreturn]] void refuse(size_t offset, const std::string& reason) const;
  /// Adds a warning about a defect that does not prevent further reading.
  void warn(size_t offset, const std::string& defect) const;

  int byte(size_t offset) const { return uint8_t(bytes[offset]); }
};

/// A message. `status` is 0x80 to 0xEF including the channel, with the data bytes `first` and
/// `second` (0 if the message has only one); 0xFF for a meta event of type `first` with `data`; or
/// another value from 0xF0 on for a system message.
struct MidiEvent {
  int64_t tick = 0;
  size_t offset = 0;  ///< position of the event's delta time in the file, in bytes
  int status = 0;
  int first = 0;
  int second = 0;
  std::string_view data;
};

/// Iterates over the events of a track, the bytes from `begin` to `end`.
///
/// Warnings are caused by missing bytes (the track then ends with the last complete event), by
/// running status continued after a meta or system exclusive event (the standard forbids it), and
/// by the other system messages (they are not allowed in files and are skipped with their data
/// bytes). Errors are caused by data bytes above 127 or without a status, and by lengths of more
/// than four bytes.
class MidiEvents {
 public:
  MidiEvents(const MidiSource& source, size_t begin, size_t end)
      : source_(source), at_(begin), end_(end) {}

  /// Reads the next event; returns false at the end of the track. End of Track is the last event.
  bool next(MidiEvent& event);

  /// Returns the offset of the next event.
  size_t offset() const { return at_; }

 private:
  enum class Read { whole, cut };

  Read read(MidiEvent& event);
  Read channel_message(MidiEvent& event, int byte);
  Read system_message(MidiEvent& event);
  bool take(int& byte);
  bool take_variable(uint32_t& value);
  bool take_data(std::string_view& data);
  bool take_data_byte(int& byte);

  const MidiSource& source_;
  size_t at_;
  size_t end_;
  int64_t tick_ = 0;
  int running_status_ = 0;  // 0: none yet
  bool canceled_ = false;   // the standard forbids using the running status here
  bool done_ = false;
};

}  // namespace stretto::music
