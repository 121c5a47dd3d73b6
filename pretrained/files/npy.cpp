#include "pretrained/files/npy.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/atomic_file.h"
#include "core/one_line.h"
#include "nn/files/other_format.h"
#include "nn/files/value_format.h"
#include "pretrained/files/byte_reader.h"
#include "pretrained/files/pytorch/zip_archive.h"

namespace stretto::nn {

using namespace files;

namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr uint64_t max_header = 1 << 16;  // bytes; eight sizes need a few hundred
const std::string suffix = ".npy";

// NumPy's types and the names of find_format(). Types of one byte have '|' for the byte order.
constexpr std::pair<std::string_view, std::string_view> types[] = {
    {"<f4", "F32"}, {"<f8", "F64"}, {"<f2", "F16"}, {"<i8", "I64"}, {"<i4", "I32"},
    {"<i2", "I16"}, {"|i1", "I8"},  {"|u1", "U8"},  {"|b1", "BOOL"}};

// Reads the dict of a header: texts, True and False, and tuples of whole numbers.
class Header {
 public:
  Header(const ByteReader& in, std::string text) : in_(in), text_(std::move(text)) {
    expect('{');
    while (!accept('}')) {
      read_entry();
      if (accept(',')) continue;
      expect('}');
      break;
    }
    if (peek() != '\0') bad();
    if (!type || !fortran || !shape) bad();
  }

  std::optional<std::string> type;
  std::optional<bool> fortran;
  std::optional<Shape> shape;

 private:
  [[noreturn]] void bad() const {
    in_.bad("is not an array of NumPy that can be read: its header is ", in_quotes(text_));
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) bad();
  }

  std::string read_text() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') bad();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) bad();
    std::string text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }
  bool read_bool() {
    peek();
    for (const auto& [word, value] : {std::pair{"True", true}, {"False", false}})
      if (text_.compare(at_, std::string_view(word).size(), word) == 0) {
        at_ += std::string_view(word).size();
        return value;
      }
    bad();
  }
  int64_t read_number() {
    if (peek() < '0' || peek() > '9') bad();
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value))
        bad();
    return value;
  }
  Shape read_tuple() {
    Shape sizes;
    expect('(');
    while (!accept(')')) {
      if (sizes.dim() == Shape::max_dims) in_.bad("has more than ", Shape::max_dims, " dimensions");
      sizes.push_back(read_number());
      if (accept(',')) continue;
      expect(')');
      break;
    }
    return sizes;
  }
  void read_entry() {
    const std::string key = read_text();
    expect(':');
    if (key == "descr" && !type)
      type = read_text();
    else if (key == "fortran_order" && !fortran)
      fortran = read_bool();
    else if (key == "shape" && !shape)
      shape = read_tuple();
    else
      bad();
  }

  const ByteReader& in_;
  const std::string text_;
  size_t at_ = 0;
};

// Reads the array at bytes `begin` … `end` − 1 of a file. `path` also has the name of the array.
Tensor read_array(const InputFile& file, const char* op, const std::string& path, int64_t begin,
                  int64_t end) {
  ByteReader in(file, op, path, begin, end);
  if (end - begin < 10 || in.text(magic.size()) != magic)
    in.bad("is not an array of NumPy", begin == 0 ? other_format(file) : "");
  const auto major = in.get<uint8_t>(), minor = in.get<uint8_t>();
  if (major < 1 || major > 3)
    in.bad("version ", int(major), ".", int(minor), "; accepted: 1.0, 2.0 and 3.0");
  const uint64_t length = major == 1 ? in.get<uint16_t>() : in.get<uint32_t>();
  if (length > max_header) in.bad("header of ", length, " bytes; at most ", max_header, " allowed");
  const Header header(in, in.text(length));
  const auto* const type = std::find_if(std::begin(types), std::end(types),
                                        [&](const auto& t) { return t.first == *header.type; });
  if (type == std::end(types))
    in.bad("type ", in_quotes(*header.type),
           "; accepted: <f8, <f4, <f2, <i8, <i4, <i2, |i1, |u1, |b1");
  const ValueFormat& format = *find_format(type->second);
  Shape sizes = *header.shape;
  if (*header.fortran) std::reverse(sizes.begin(), sizes.end());
  const std::optional<int64_t> bytes = bytes_of(format, sizes);
  if (!bytes || *bytes != in.remaining())
    in.bad("shape ", *header.shape, " of ", in_quotes(*header.type), " needs ",
           bytes ? std::to_string(*bytes) : "too many", " bytes; the data have ", in.remaining());
  const Tensor x = read_values(file, in.position(), format, sizes);
  if (const auto value = x.dtype() == boolean ? not_boolean(x) : std::nullopt)
    in.bad("has the value ", *value, " in an array of bool");
  Shape order;
  for (int64_t d = 0; d < x.dim(); ++d) order.push_back(*header.fortran ? x.dim() - 1 - d : d);
  return *header.fortran ? x.permute(order) : x;
}

// The values that are written: on the CPU, row-major, in a dtype that NumPy has.
Tensor written(const Tensor& x) {
  const Tensor y = x.detach().contiguous().to(cpu);
  return y.dtype() == bf16 ? y.to(f32) : y;
}

// All bytes before the data; their number is a multiple of 64.
std::string header_of(const Tensor& x) {
  std::string_view type;
  for (const auto& [descr, format] : types)
    if (const ValueFormat& f = *find_format(format);
        f.dtype == x.dtype() && f.bytes == item_size(x.dtype()))
      type = descr;
  std::string text = str("{'descr': '", std::string(type), "', 'fortran_order': False, 'shape': (");
  for (int64_t size : x.shape()) text += str(size, x.dim() == 1 ? "," : ", ");
  if (x.dim() > 1) text.resize(text.size() - 2);
  text += "), }";
  constexpr size_t before = magic.size() + 4;
  text.resize((before + text.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  text += '\n';
  const auto length = uint16_t(text.size());
  return std::string(magic) + '\1' + '\0' + char(length & 0xff) + char(length >> 8) + text;
}

int64_t bytes_of(const Tensor& x) { return x.numel() * item_size(x.dtype()); }

// The checksum of zip archives, ISO 3309, continued from `crc`.
uint32_t crc32(uint32_t crc, const void* data, int64_t n) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0xedb88320u : 0);
    }
    return t;
  }();
  crc = ~crc;
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (int64_t i = 0; i < n; ++i) crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
  return ~crc;
}

// Little-endian fields of zip records.
class Fields {
 public:
  Fields& u16(uint64_t v) { return put(v, 2); }
  Fields& u32(uint64_t v) { return put(v, 4); }
  Fields& u64(uint64_t v) { return put(v, 8); }
  Fields& text(const std::string& t) {
    bytes += t;
    return *this;
  }
  std::string bytes;

 private:
  Fields& put(uint64_t value, int n) {
    for (int i = 0; i < n; ++i) bytes += char(value >> 8 * i & 0xff);
    return *this;
  }
};

// Records of a zip archive (PKWARE APPNOTE 6.3, 4.3 and 4.5). Sizes and positions are always in
// zip64 fields, so that files of any size are written in the same way.
constexpr uint64_t in_zip64 = 0xffffffff, utf8_name = 1 << 11, version = 45, date = 0x21;

Fields entry_start(uint32_t crc, const std::string& name, uint64_t extra) {
  return Fields()
      .u16(version)
      .u16(utf8_name)
      .u16(0)
      .u16(0)
      .u16(date)
      .u32(crc)
      .u32(in_zip64)
      .u32(in_zip64)
      .u16(name.size())
      .u16(extra);
}

std::string local_header(uint32_t crc, const std::string& name, uint64_t size) {
  return Fields()
      .u32(0x04034b50)
      .text(entry_start(crc, name, 20).bytes)
      .text(name)
      .u16(1)
      .u16(16)
      .u64(size)
      .u64(size)
      .bytes;
}

std::string directory_entry(uint32_t crc, const std::string& name, uint64_t size, uint64_t at) {
  return Fields()
      .u32(0x02014b50)
      .u16(version)
      .text(entry_start(crc, name, 28).bytes)
      .u16(0)
      .u16(0)
      .u16(0)
      .u32(0)
      .u32(in_zip64)
      .text(name)
      .u16(1)
      .u16(24)
      .u64(size)
      .u64(size)
      .u64(at)
      .bytes;
}

std::string directory_end(uint64_t entries, uint64_t bytes, uint64_t at) {
  return Fields()
      .u32(0x06064b50)
      .u64(44)
      .u16(version)
      .u16(version)
      .u32(0)
      .u32(0)
      .u64(entries)
      .u64(entries)
      .u64(bytes)
      .u64(at)
      .u32(0x07064b50)
      .u32(0)
      .u64(at + bytes)
      .u32(1)
      .u32(0x06054b50)
      .u16(0)
      .u16(0)
      .u16(0xffff)
      .u16(0xffff)
      .u32(in_zip64)
      .u32(in_zip64)
      .u16(0)
      .bytes;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  const InputFile file("npy", path);
  return read_array(file, "npy", path, 0, file.size());
}

void save_npy(const std::string& path, const Tensor& x) {
  const Tensor values = written(x);
  const std::string header = header_of(values);
  AtomicFile file(path);
  file.write(header.data(), int64_t(header.size()));
  file.write(values.raw_data(), bytes_of(values));
  file.commit();
}

std::vector<NamedTensor> load_npz(const std::string& path) {
  const InputFile file("npz", path);
  if (format_of(file) != FileFormat::zip)
    fail("npz", path, ": is not a zip archive", other_format(file));
  const ZipArchive archive(file, "npz", path);
  std::vector<NamedTensor> tensors;
  for (const ZipArchive::Entry& entry : archive.entries()) {
    const std::string shown = path + ": " + in_quotes(entry.name);
    if (!entry.name.ends_with(suffix)) fail("npz", shown, " is not an array: its name has no .npy");
    const int64_t at = archive.data_position(entry);
    tensors.push_back({entry.name.substr(0, entry.name.size() - suffix.size()),
                       read_array(file, "npz", shown, at, at + entry.size)});
  }
  return tensors;
}

void save_npz(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::set<std::string> names;
  AtomicFile file(path);
  std::string directory;
  uint64_t at = 0;
  const auto append = [&](const void* bytes, int64_t n) {
    file.write(bytes, n);
    at += uint64_t(n);
  };
  for (const NamedTensor& named : tensors) {
    check(!named.name.empty() && named.name.size() < 60'000, "npz", path, ": a tensor is called ",
          in_quotes(named.name), "; accepted: names of 1 to 59,999 bytes");
    check(names.insert(named.name).second, "npz", path, ": two tensors are called ",
          in_quotes(named.name));
    const std::string name = named.name + suffix;
    const Tensor values = written(named.tensor);
    const std::string header = header_of(values);
    const uint64_t size = header.size() + uint64_t(bytes_of(values));
    const uint32_t crc =
        crc32(crc32(0, header.data(), int64_t(header.size())), values.raw_data(), bytes_of(values));
    directory += directory_entry(crc, name, size, at);
    const std::string local = local_header(crc, name, size);
    append(local.data(), int64_t(local.size()));
    append(header.data(), int64_t(header.size()));
    append(values.raw_data(), bytes_of(values));
  }
  // An archive without entries is the last record alone; readers look for it at the start.
  std::string end = directory + directory_end(tensors.size(), directory.size(), at);
  if (tensors.empty()) end = Fields().u32(0x06054b50).u64(0).u64(0).u16(0).bytes;
  append(end.data(), int64_t(end.size()));
  file.commit();
}

}  // namespace stretto::nn
