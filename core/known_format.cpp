#include "core/known_format.h"

#include <array>

namespace stretto {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view name, signature;
  size_t at = 0;  // offset of the signature
};

// The signatures are those of the formats' specifications, as in file(1).
constexpr std::array formats{Format{"gzip-compressed", "\x1F\x8B"sv},
                             Format{"bzip2-compressed", "1AY&SY"sv, 4},
                             Format{"xz-compressed", "\xFD\x37\x7A\x58\x5A\0"sv},
                             Format{"zstd-compressed", "\x28\xB5\x2F\xFD"sv},
                             Format{"lz4-compressed", "\x04\x22\x4D\x18"sv},
                             Format{"compressed (.Z)", "\x1F\x9D"sv},
                             Format{"a zip archive", "PK\3\4"sv},
                             Format{"a zip archive", "PK\5\6"sv},
                             Format{"a 7z archive", "7z\xBC\xAF\x27\x1C"sv},
                             Format{"a rar archive", "Rar!\x1A\x07"sv},
                             Format{"a tar archive", "ustar"sv, 257},
                             Format{"a NumPy array", "\x93NUMPY"sv},
                             Format{"an HDF5 file", "\x89HDF\r\n\x1A\n"sv},
                             Format{"an Arrow file", "ARROW1\0"sv},
                             Format{"an SQLite database", "SQLite format 3\0"sv},
                             Format{"a program", "\x7F\x45LF"sv},
                             Format{"a PDF document", "%PDF-"sv},
                             Format{"a PNG picture", "\x89PNG\r\n\x1A\n"sv},
                             Format{"a JPEG picture", "\xFF\xD8\xFF"sv},
                             Format{"a GIF picture", "GIF89a"sv},
                             Format{"a GIF picture", "GIF87a"sv},
                             Format{"a MIDI file", "MThd\0\0\0"sv},
                             Format{"a Git LFS pointer", "version https://git-lfs.github.com"sv},
                             Format{"UTF-32 text", "\xFF\xFE\0\0"sv},
                             Format{"UTF-32 text", "\0\0\xFE\xFF"sv},
                             Format{"UTF-16 text", "\xFF\xFE"sv},
                             Format{"UTF-16 text", "\xFE\xFF"sv}};

// Formats whose signature at the beginning is too short, or too much like text, to be sufficient.
std::string format_by_both_ends(std::string_view bytes) {
  if (bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5 &&
      bytes.ends_with('.'))
    return "a Python pickle";
  if (bytes.size() > 8 && bytes.starts_with("PAR1") && bytes.ends_with("PAR1"))
    return "a Parquet file";
  return "";
}

}  // namespace

std::string known_format(std::string_view bytes) {
  for (const Format& format : formats)
    if (bytes.size() > format.at && bytes.substr(format.at).starts_with(format.signature))
      return std::string(format.name);
  return format_by_both_ends(bytes);
}

}  // namespace stretto
