#include "pretrained/files/pytorch/zip_archive.h"

#include <algorithm>
#include <cstring>

#include "core/one_line.h"
#include "pretrained/files/byte_reader.h"

namespace stretto::nn::files {
namespace {

constexpr uint32_t local_signature = 0x04034b50, entry_signature = 0x02014b50,
                   end_signature = 0x06054b50, end64_signature = 0x06064b50,
                   locator_signature = 0x07064b50;
constexpr int64_t local_bytes = 30, entry_bytes = 46, end_bytes = 22, end64_bytes = 56,
                  locator_bytes = 20;
constexpr int64_t max_comment = 65535;
constexpr int64_t max_directory = 100'000'000;  // bytes
constexpr uint32_t in_zip64 = 0xffffffff;       // the value is in the zip64 field

template <class T>
T value_at(const std::string& bytes, int64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

template <class... Parts>
void ZipArchive::bad(const Parts&... parts) const {
  fail(op_, path_, ": ", parts...);
}

ZipArchive::ZipArchive(const InputFile& file, const char* op, std::string path)
    : file_(file), op_(op), path_(std::move(path)) {
  const Directory directory = find_directory();
  read_directory(directory);
  check_places(directory.position);
}

// The record at the end of the file, before a comment, has the position of the directory. If a value
// has too many bits, it is in another record, whose position is in the locator before the record.
ZipArchive::Directory ZipArchive::find_directory() const {
  const int64_t size = file_.size(), tail = std::min(size, end_bytes + max_comment);
  std::string bytes(size_t(tail), '\0');
  file_.read(bytes.data(), tail, size - tail);
  int64_t at = tail - end_bytes;
  while (at >= 0 && value_at<uint32_t>(bytes, at) != end_signature) --at;
  if (at < 0) bad("is a truncated zip archive: it has no directory at its end");
  Directory found{value_at<uint32_t>(bytes, at + 16), value_at<uint32_t>(bytes, at + 12),
                  value_at<uint16_t>(bytes, at + 10)};
  int64_t end = size - tail + at;  // of the directory
  if (found.position == in_zip64 || found.bytes == in_zip64 || found.entries == 0xffff) {
    if (at < locator_bytes || value_at<uint32_t>(bytes, at - locator_bytes) != locator_signature)
      bad("is a damaged zip archive: it has no zip64 locator");
    const auto record = value_at<uint64_t>(bytes, at - locator_bytes + 8);
    if (record > uint64_t(end - locator_bytes) ||
        end - locator_bytes - int64_t(record) < end64_bytes)
      bad("is a damaged zip archive: its zip64 record is at byte ", record);
    ByteReader in(file_, op_, path_, int64_t(record), end);
    if (in.get<uint32_t>() != end64_signature) bad("is a damaged zip archive: no zip64 record");
    in.skip(8 + 2 + 2 + 4 + 4 + 8);
    const auto entries = in.get<uint64_t>(), directory = in.get<uint64_t>(),
               position = in.get<uint64_t>();
    if ((entries | directory | position) >> 63 != 0)
      bad("is a damaged zip archive: its directory is outside of the file");
    found = {int64_t(position), int64_t(directory), int64_t(entries)};
    end = int64_t(record);
  }
  if (found.bytes > max_directory)
    bad("has a directory of ", found.bytes, " bytes; at most ", max_directory, " allowed");
  if (found.position > end || found.bytes > end - found.position)
    bad("is a damaged zip archive: its directory is outside of the file");
  if (found.entries > found.bytes / entry_bytes)
    bad("is a damaged zip archive: ", found.entries, " entries in a directory of ", found.bytes,
        " bytes");
  return found;
}

void ZipArchive::read_directory(const Directory& directory) {
  ByteReader in(file_, op_, path_, directory.position, directory.position + directory.bytes);
  entries_.reserve(size_t(directory.entries));
  for (int64_t i = 0; i < directory.entries; ++i) {
    if (in.get<uint32_t>() != entry_signature) bad("is a damaged zip archive: entry ", i);
    Entry entry;
    in.skip(2 + 2);
    entry.encrypted = (in.get<uint16_t>() & 1) != 0;
    entry.method = in.get<uint16_t>();
    in.skip(4 + 4);
    uint64_t stored = in.get<uint32_t>(), size = in.get<uint32_t>();
    const auto name = in.get<uint16_t>(), extra = in.get<uint16_t>(), comment = in.get<uint16_t>();
    in.skip(2 + 2 + 4);
    uint64_t header = in.get<uint32_t>();
    entry.name = in.text(name);
    const std::string fields = in.text(extra);
    in.skip(comment);
    // The zip64 field has the values that do not fit, in this order.
    for (size_t at = 0; at + 4 <= fields.size();) {
      const auto id = value_at<uint16_t>(fields, int64_t(at)),
                 bytes = value_at<uint16_t>(fields, int64_t(at) + 2);
      const size_t end = at + 4 + bytes;
      if (end > fields.size()) break;
      size_t value = at + 4;
      for (uint64_t* wide : {&size, &stored, &header})
        if (id == 1 && *wide == in_zip64 && value + 8 <= end) {
          *wide = value_at<uint64_t>(fields, int64_t(value));
          value += 8;
        }
      at = end;
    }
    if (header > uint64_t(directory.position) || size > uint64_t(file_.size()))
      bad("is a damaged zip archive: ", in_quotes(entry.name), " is outside of the file");
    if (entry.method == 0 && stored != size)
      bad("is a damaged zip archive: ", in_quotes(entry.name), " has two sizes");
    entry.header = int64_t(header);
    entry.size = int64_t(size);
    entries_.push_back(std::move(entry));
  }
}

void ZipArchive::check_places(int64_t directory) {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.header < b.header; });
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    entry.end = i + 1 < entries_.size() ? entries_[i + 1].header : directory;
    const int64_t least =
        local_bytes + int64_t(entry.name.size()) + (entry.method == 0 ? entry.size : 0);
    if (entry.end - entry.header < least)
      bad("is a damaged zip archive: ", in_quotes(entry.name), " overlaps the next entry");
    if (!by_name_.emplace(entry.name, i).second) bad("has two entries ", in_quotes(entry.name));
  }
}

const ZipArchive::Entry* ZipArchive::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

int64_t ZipArchive::data_position(const Entry& entry) const {
  if (entry.encrypted) bad(in_quotes(entry.name), " is encrypted, which is not supported");
  if (entry.method != 0)
    bad(in_quotes(entry.name), " is compressed (method ", int(entry.method),
        "); only stored entries are supported, as torch.save() and numpy.savez() write them");
  ByteReader in(file_, op_, path_, entry.header, entry.end);
  if (in.get<uint32_t>() != local_signature)
    bad("is a damaged zip archive: ", in_quotes(entry.name), " is not at its position");
  in.skip(22);
  const auto name = in.get<uint16_t>(), extra = in.get<uint16_t>();
  if (in.text(name) != entry.name)
    bad("is a damaged zip archive: ", in_quotes(entry.name), " has two names");
  in.skip(extra);
  if (entry.size > in.remaining())
    bad("is a damaged zip archive: ", in_quotes(entry.name), " overlaps the next entry");
  return in.position();
}

}  // namespace stretto::nn::files
