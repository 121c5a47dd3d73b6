// Files of torch.save() as bytes: zip archives and pickles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_bytes.h"

namespace stretto::testing {

/// An entry of a zip archive. `size` and `method` are written to its headers.
struct ZipBytes {
  std::string name, data;
  uint16_t method = 0;
};

/// Returns the bytes of a zip archive with stored entries, without checksums. With `wide`, sizes
/// and positions are in zip64 records.
inline std::string zip_bytes(const std::vector<ZipBytes>& entries, bool wide = false) {
  const auto half = [](size_t n) { return bytes_of_value(uint16_t(n)); };
  const auto word = [&](size_t n) { return bytes_of_value(wide ? 0xffffffff : uint32_t(n)); };
  const auto field = [&](size_t n) {
    return wide ? half(1) + half(8 * n) : std::string();  // the head of a zip64 field of n values
  };
  const auto value = [&](size_t n) { return wide ? bytes_of_value(uint64_t(n)) : std::string(); };
  std::string file, directory;
  for (const ZipBytes& e : entries) {
    const size_t at = file.size(), size = e.data.size(), extra = wide ? 4 + 16 : 0;
    const std::string middle = half(45) + half(0) + half(e.method) + std::string(8, '\0') +
                               word(size) + word(size) + half(e.name.size());
    file +=
        "PK\3\4" + middle + half(extra) + e.name + field(2) + value(size) + value(size) + e.data;
    directory += "PK\1\2" + half(45) + middle + half(wide ? 4 + 24 : 0) + half(0) +
                 std::string(8, '\0') + word(at) + e.name + field(3) + value(size) + value(size) +
                 value(at);
  }
  const size_t at = file.size(), end = at + directory.size();
  file += directory;
  if (wide)
    file += "PK\6\6" + value(44) + half(45) + half(45) + std::string(8, '\0') +
            value(entries.size()) + value(entries.size()) + value(directory.size()) + value(at) +
            "PK\6\7" + std::string(4, '\0') + value(end) + bytes_of_value(uint32_t(1));
  return file + "PK\5\6" + std::string(4, '\0') + half(wide ? 0xffff : entries.size()) +
         half(wide ? 0xffff : entries.size()) + word(directory.size()) + word(at) + half(0);
}

/// Returns the opcodes of values.
/// @{
inline std::string pickled(const std::string& text) {
  return "X" + bytes_of_value(uint32_t(text.size())) + text;
}
inline std::string pickled(int64_t value) { return "\x8a\x08" + bytes_of_value(value); }
inline std::string pickled_tuple(const std::vector<int64_t>& values) {
  std::string items;
  for (const int64_t value : values) items += pickled(value);
  return "(" + items + "t";
}
inline std::string pickled_global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
/// @}

/// A tensor in a pickle.
struct PickledTensor {
  std::string key = "0", storage = "FloatStorage";
  int64_t numel = 0;  // of the storage
  int64_t offset = 0;
  std::vector<int64_t> shape, strides;
};
/// Returns the opcodes of a tensor; `view` are those of a view of the storage in the old format.
inline std::string pickled(const PickledTensor& t, const std::string& view = "") {
  return pickled_global("torch._utils", "_rebuild_tensor_v2") + "((" + pickled("storage") +
         pickled_global("torch", t.storage) + pickled(t.key) + pickled("cpu") + pickled(t.numel) +
         view + "tQ" + pickled(t.offset) + pickled_tuple(t.shape) + pickled_tuple(t.strides) +
         "\x89" + pickled_global("collections", "OrderedDict") + ")RtR";
}
/// Returns the opcodes of a dict; `items` are pairs of pickled keys and values.
inline std::string pickled_dict(const std::string& items) { return "}(" + items + "u"; }

/// Returns a whole pickle.
inline std::string pickle(const std::string& value) { return "\x80\2" + value + "."; }

/// Returns a file in the zip format, with the values of storage "0", and of others.
inline std::string torch_zip(const std::string& value, const std::string& data,
                             const std::vector<ZipBytes>& more = {}) {
  std::vector<ZipBytes> entries = {{"a/data.pkl", pickle(value)}, {"a/data/0", data}};
  entries.insert(entries.end(), more.begin(), more.end());
  return zip_bytes(entries);
}

/// Returns a file in the older format, with `numel` values of storage "0".
inline std::string torch_pickles(const std::string& value, int64_t numel, const std::string& data,
                                 bool little_endian = true) {
  const std::string magic = "\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  return pickle(magic) + pickle(pickled(1001)) +
         pickle(pickled_dict(pickled("little_endian") + (little_endian ? "\x88" : "\x89"))) +
         pickle(value) + pickle("](" + pickled("0") + "e") + bytes_of_value(numel) + data;
}

}  // namespace stretto::testing
