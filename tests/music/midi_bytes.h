// MIDI files built byte by byte, for the tests of the reader.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stretto::music::testing {

/// Returns the bytes of a literal including zeros, without the terminating one.
template <std::size_t Size>
std::string bytes_of(const char (&literal)[Size]) {
  return std::string(literal, Size - 1);
}

inline std::string big_endian(std::size_t value, int count) {
  std::string bytes;
  for (int i = count - 1; i >= 0; --i) bytes += static_cast<char>(value >> 8 * i & 0xFF);
  return bytes;
}

inline std::string chunk(const std::string& type, const std::string& data) {
  return type + big_endian(data.size(), 4) + data;
}

inline std::string header(std::size_t format, std::size_t tracks, std::size_t division) {
  return chunk("MThd", big_endian(format, 2) + big_endian(tracks, 2) + big_endian(division, 2));
}

inline const std::string kEnd = bytes_of("\0\xFF\x2F\0");

/// Returns a track with these events and End of Track.
inline std::string track(const std::string& events) { return chunk("MTrk", events + kEnd); }

/// Returns a file with 96 ticks per quarter note.
inline std::string midi(std::size_t format, const std::vector<std::string>& tracks) {
  std::string bytes = header(format, tracks.size(), 96);
  for (const std::string& events : tracks) bytes += track(events);
  return bytes;
}

}  // namespace stretto::music::testing
