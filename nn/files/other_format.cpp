#include "nn/files/other_format.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/input_file.h"
#include "nn/files/safetensors_header.h"

namespace stretto::nn::files {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view first;  // the first bytes of a file
  const char* name;
};
constexpr Format formats[] = {
    {"PK\3\4"sv, "PyTorch's own format, or another archive, which open_weights() can open"},
    {"\x80\2"sv, "PyTorch's old format, a pickle, which open_weights() can open"},
    {"\x80\4"sv, "a pickle of Python"},
    {"\x1f\x8b"sv, "a compressed file (gzip)"},
    {"GGUF"sv, "GGUF, the format of llama.cpp, which open_weights() can open"},
    {"\x89HDF"sv, "HDF5, the format of Keras"},
    {"\x93NUMPY"sv, "an array of NumPy"},
    {"version https://git-lfs"sv, "a pointer of Git LFS, which has not been fetched"},
};

// Returns the first bytes, at most 64; with `text`, without a byte order mark and leading white
// space.
std::string first_bytes(const InputFile& file, bool text) {
  std::string bytes(size_t(std::min<int64_t>(file.size(), 64)), '\0');
  file.read(bytes.data(), int64_t(bytes.size()), 0);
  if (!text) return bytes;
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.erase(0, 3);
  bytes.erase(0, std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size()));
  return bytes;
}

bool is_text(const std::string& bytes) {
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) {
    return c >= ' ' ? c != 0x7f : c == '\t' || c == '\r' || c == '\n';
  });
}

}  // namespace

FileFormat format_of(const InputFile& file) {
  const std::string raw = first_bytes(file, false);
  if (raw.starts_with("GGUF")) return FileFormat::gguf;  // no safetensors header is that long
  if (raw.size() > 8 && raw[8] == '{') return FileFormat::other;
  if (raw.starts_with("PK\3\4") || raw.starts_with("PK\5\6")) return FileFormat::zip;
  const bool is_pickle = raw.size() > 1 && raw[0] == '\x80' && uint8_t(raw[1]) <= 5;  // protocol
  return is_pickle ? FileFormat::pickle : FileFormat::other;
}

std::string other_format(const InputFile& file) {
  const std::string raw = first_bytes(file, false);
  // A header begins after its length.
  if (raw.size() > 8 && raw[8] == '{' && format_of(file) == FileFormat::other) return "";
  for (const Format& format : formats)
    if (raw.starts_with(format.first)) return std::string("; it looks like ") + format.name;
  const std::string text = first_bytes(file, true);
  if (!is_text(text)) return "";
  if (text[0] == '<')
    return "; it looks like an HTML page, e.g. from a failed download: " + in_quotes(text);
  if (text[0] == '{' || text[0] == '[')
    return "; it looks like JSON, e.g. from a failed download: " + in_quotes(text);
  return "; it looks like text: " + in_quotes(text);
}

bool looks_like_index(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const InputFile file("safetensors", path);
  if (file.size() < 8) return false;
  uint64_t length = 0;
  file.read(&length, 8, 0);
  return length > max_header && first_bytes(file, true).starts_with("{");
}

}  // namespace stretto::nn::files
