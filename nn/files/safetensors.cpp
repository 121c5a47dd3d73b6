#include "nn/files/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_set>

#include "core/storage.h"
#include "nn/files/atomic_file.h"
#include "nn/files/digest.h"

namespace stretto::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr const char* metadata_key = "__metadata__";
constexpr uint64_t max_header = 100'000'000;  // as in the format's own package
constexpr size_t max_names = 100'000;  // tensors, and texts: a header of tiny ones is refused

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr DTypeName dtype_names[] = {{"F32", f32}, {"F64", f64}, {"BF16", bf16},   {"I64", i64},
                                     {"I32", i32}, {"U8", u8},   {"BOOL", boolean}};

const char* format_name(DType dtype) {
  for (const auto& known : dtype_names)
    if (known.dtype == dtype) return known.name;
  return "";
}

// The value of digest_key: "HEADER:DATA".
constexpr size_t digest_length = 16 + 1 + 16;
const std::string no_digest = std::string(16, '0') + ':' + std::string(16, '0');

// Where it stands in a header; npos where there is none. A name or a text cannot look like this:
// quotes in them have a backslash before them.
size_t find_digest(const std::string& header) {
  const std::string before = '"' + digest_key + "\":\"";
  const size_t at = header.find(before);
  return at == std::string::npos ? at : at + before.size();
}

// Of a header without its digest, and of its length before it.
std::string header_digest(const std::string& header) {
  const uint64_t length = header.size();
  Digest digest;
  digest.add(&length, 8);
  digest.add(header.data(), int64_t(length));
  return digest.text();
}

// A text from a file, fit for one line of a message.
std::string in_quotes(const std::string& text) {
  std::string shown = "\"";
  for (char c : text.substr(0, 80)) {
    const bool control = (c >= 0 && c < ' ') || c == 127;
    shown += control ? '?' : c;
  }
  return shown + (text.size() > 80 ? "…\"" : "\"");
}

struct Entry {
  std::string name;
  DType dtype = f32;
  Shape shape;
  int64_t begin = 0, end = 0;
};

// Builds the entries while nlohmann-json reads the header, which is the only way to see that a key
// stands there twice. Depths: 1 the header, 2 a tensor or the metadata, 3 a list of numbers.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  std::vector<Entry> entries;
  Metadata metadata;

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail("safetensors", path_, ": ", parts...);
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (depth_ == 2) {
      in_metadata_ = name_ == metadata_key;
      fields_.clear();
      if (!in_metadata_) entries.push_back({.name = name_, .dtype = f32, .shape = {}});
      if (entries.size() > max_names) bad("more than ", max_names, " tensors");
    }
    if (depth_ > 2) unexpected("an object");
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      if (!names_.insert(text).second) bad("the name ", in_quotes(text), " stands there twice");
      name_ = text;
    } else {
      const bool known = text == "dtype" || text == "shape" || text == "data_offsets";
      if (!in_metadata_ && !known) bad(where(), "unknown field ", in_quotes(text));
      if (!fields_.insert(text).second) bad(where(), in_quotes(text), " stands there twice");
      if (fields_.size() > max_names) bad(where(), "more than ", max_names, " texts");
      field_ = text;
    }
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field)) bad(where(), "\"", field, "\" is missing");
    }
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") unexpected("a list");
    ++depth_;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    --depth_;
    if (field_ == "shape") {
      entries.back().shape = Shape(numbers_);
    } else {
      if (numbers_.size() != 2) bad(where(), "data_offsets has ", numbers_.size(), " numbers");
      entries.back().begin = numbers_[0];
      entries.back().end = numbers_[1];
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (depth_ != 3) unexpected("a number");
    if (value > uint64_t(INT64_MAX)) bad(where(), field_, " holds ", value, ", which is too large");
    if (numbers_.size() == size_t(Shape::max_dims))
      bad(where(), field_, " has more than ", Shape::max_dims, " numbers");
    numbers_.push_back(int64_t(value));
    return true;
  }
  bool number_integer(int64_t value) override {
    if (depth_ != 3) unexpected("a number");
    bad(where(), field_, " holds the negative number ", value);
  }
  bool number_float(double, const std::string& text) override {
    if (depth_ != 3) unexpected("a number");
    bad(where(), field_, " holds ", in_quotes(text), ", which is no integer in range");
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      metadata[field_] = text;
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") unexpected("a text");
    for (const auto& known : dtype_names) {
      if (text == known.name) {
        entries.back().dtype = known.dtype;
        return true;
      }
    }
    bad(where(), "dtype ", in_quotes(text),
        " is not supported; accepted: F32, F64, BF16, I64, I32, ", "U8, BOOL");
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a truth value"); }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    bad("the header is not JSON (byte ", at, " of it)");
  }

 private:
  std::string where() const {
    return depth_ == 0 ? "" : in_metadata_ && depth_ > 1 ? "metadata: " : in_quotes(name_) + ": ";
  }
  [[noreturn]] void unexpected(const char* what) const {
    if (depth_ < 2) bad(where(), "found ", what, " where an object must be");
    bad(where(), in_quotes(field_), " holds ", what);
  }

  const std::string& path_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_, field_;
  std::unordered_set<std::string> names_;
  std::set<std::string> fields_;
  std::vector<int64_t> numbers_;
};

// An open file with a checked header. `entries` are in the order of their data.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    do {
      fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) bad("cannot open: ", std::strerror(errno));
    try {
      read_header();
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
  ~Reader() { ::close(fd_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::vector<Entry> entries;
  Metadata metadata;

  void read(void* to, int64_t bytes, int64_t at) const {
    char* into = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, into, size_t(bytes), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) bad("cannot read: ", std::strerror(errno));
      if (got == 0) bad("ended early; did something else write to it?");
      into += got;
      at += got;
      bytes -= got;
    }
  }

  /// All values, in the order of their data.
  std::vector<NamedTensor> tensors() const {
    std::vector<NamedTensor> all;
    Digest digest;
    for (const Entry& entry : entries) {
      all.push_back({entry.name, tensor(entry)});
      if (!data_digest_.empty()) digest.add(all.back().tensor.raw_data(), entry.end - entry.begin);
    }
    if (!data_digest_.empty() && digest.text() != data_digest_)
      bad("is damaged: the tensors' data are not those it was saved with");
    return all;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail("safetensors", path_, ": ", parts...);
  }

  Tensor tensor(const Entry& entry) const {
    Tensor x = empty(entry.shape, {.dtype = entry.dtype});
    read(x.raw_data(), entry.end - entry.begin, data_start_ + entry.begin);
    if (entry.dtype == boolean) {
      const auto* bytes = static_cast<const uint8_t*>(x.raw_data());
      for (int64_t i = 0; i < x.numel(); ++i)
        if (bytes[i] > 1) bad(in_quotes(entry.name), ": a BOOL holds ", int(bytes[i]));
    }
    return x;
  }

  void read_header() {
    struct stat info;
    if (::fstat(fd_, &info) != 0) bad("cannot stat: ", std::strerror(errno));
    if (!S_ISREG(info.st_mode)) bad("is not a regular file");
    const int64_t size = info.st_size;
    if (size < 8) bad("has ", size, " bytes; the shortest header takes 8");
    uint64_t length = 0;
    read(&length, 8, 0);
    if (length > max_header) bad("header of ", length, " bytes; at most ", max_header, " allowed");
    if (int64_t(length) > size - 8)
      bad("truncated: header of ", length, " bytes in a file of ", size);
    std::string header(length, '\0');
    read(header.data(), int64_t(length), 8);
    // JSON has no zero bytes, but the parser would take one for the end.
    if (header.empty() || header[0] != '{') bad("the header does not begin with {");
    if (const size_t zero = header.find('\0'); zero != std::string::npos)
      bad("the header is not JSON (byte ", zero + 1, " of it)");

    HeaderReader reader(path_);
    nlohmann::json::sax_parse(header, &reader);
    entries = std::move(reader.entries);
    metadata = std::move(reader.metadata);
    data_start_ = 8 + int64_t(length);
    check_digest(std::move(header));
    check_layout(size - data_start_);
  }

  // Before the layout: what a flipped bit has made of the header is not worth a complaint of its
  // own.
  void check_digest(std::string header) {
    const auto found = metadata.find(digest_key);
    if (found == metadata.end()) return;
    const std::string& text = found->second;
    const size_t at = find_digest(header);
    if (text.size() != digest_length || text[16] != ':' || at == std::string::npos ||
        header.compare(at, digest_length, text) != 0)
      bad("its digest is malformed");
    header.replace(at, digest_length, no_digest);
    if (header_digest(header) != text.substr(0, 16))
      bad("is damaged: its header is not the one it was saved with");
    data_digest_ = text.substr(17);
  }

  void check_layout(int64_t bytes) {
    for (const Entry& e : entries) {
      int64_t count = item_size(e.dtype);
      bool overflow = false;
      for (int64_t n : e.shape)
        if (n > 0) overflow |= __builtin_mul_overflow(count, n, &count);
      if (overflow || count > (int64_t(1) << 58))
        bad(in_quotes(e.name), ": shape ", e.shape, " has too many elements");
      if (e.begin > e.end)
        bad(in_quotes(e.name), ": its data begin at ", e.begin, " and end before, at ", e.end);
      if (e.end > bytes)
        bad(in_quotes(e.name), ": its data end at byte ", e.end, ", the file's at ", bytes);
      const int64_t needed = e.shape.numel() == 0 ? 0 : count;
      if (e.end - e.begin != needed)
        bad(in_quotes(e.name), ": ", format_name(e.dtype), " ", e.shape, " takes ", needed,
            " bytes, data_offsets give ", e.end - e.begin);
    }
    std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    int64_t at = 0;
    for (const Entry& e : entries) {
      if (e.begin < at) bad(in_quotes(e.name), ": its data overlap those of another tensor");
      if (e.begin > at)
        bad("a hole of ", e.begin - at, " bytes before the data of ", in_quotes(e.name));
      at = e.end;
    }
    if (at != bytes) bad(bytes - at, " bytes after the data of the last tensor");
  }

  const std::string path_;
  int fd_ = -1;
  int64_t data_start_ = 0;
  std::string data_digest_;  // empty: the file has none
};

// A JSON string; throws for what is not UTF-8.
std::string json_text(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("save", path, ": the text ", in_quotes(text), " is not UTF-8");
  }
}

}  // namespace

const Tensor& Safetensors::operator[](const std::string& name) const {
  for (const NamedTensor& n : tensors)
    if (n.name == name) return n.tensor;
  fail("safetensors", "no tensor ", in_quotes(name));
}

void save_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const Metadata& metadata) {
  std::vector<NamedTensor> sorted = tensors;
  for (const NamedTensor& n : sorted) {
    check(n.tensor.defined(), "save", path, ": ", in_quotes(n.name), " is an undefined tensor");
    check(n.name != metadata_key, "save", path, ": no tensor can be called ", metadata_key);
  }
  std::ranges::sort(sorted, [](const NamedTensor& a, const NamedTensor& b) {
    const auto rank = [](const NamedTensor& n) { return -item_size(n.tensor.dtype()); };
    return std::pair(rank(a), std::cref(a.name).get()) <
           std::pair(rank(b), std::cref(b.name).get());
  });

  std::set<std::string> names;
  std::string header = "{";
  const auto member = [&](const std::string& key) {
    if (header.back() != '{') header += ',';
    header += json_text(path, key) + ':';
  };
  check(metadata.size() <= max_names && sorted.size() <= max_names, "save", path, ": ",
        sorted.size(), " tensors and ", metadata.size(), " texts; at most ", max_names,
        " of each can be read");
  if (!metadata.empty()) {
    member(metadata_key);
    header += '{';
    for (const auto& [key, value] : metadata) {
      member(key);
      header += json_text(path, key == digest_key ? no_digest : value);
    }
    header += '}';
  }
  int64_t at = 0;
  for (const NamedTensor& n : sorted) {
    check(names.insert(n.name).second, "save", path, ": two tensors are called ",
          in_quotes(n.name));
    const int64_t end = at + n.tensor.numel() * item_size(n.tensor.dtype());
    member(n.name);
    header += str("{\"dtype\":\"", format_name(n.tensor.dtype()), "\",\"shape\":[");
    for (int64_t d = 0; d < n.tensor.dim(); ++d) header += str(d > 0 ? "," : "", n.tensor.size(d));
    header += str("],\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  check(length <= max_header, "save", path, ": a header of ", length, " bytes; at most ",
        max_header, " allowed");

  AtomicFile file(path);
  file.write(&length, 8);
  file.write(header.data(), int64_t(length));
  const bool sealed = metadata.contains(digest_key);
  Digest digest;
  for (const NamedTensor& n : sorted) {
    const Tensor x = n.tensor.detach().contiguous().to(cpu);
    const int64_t bytes = x.numel() * item_size(x.dtype());
    if (bytes > 0) file.write(x.raw_data(), bytes);
    if (sealed) digest.add(x.raw_data(), bytes);
  }
  if (sealed) {
    const std::string text = header_digest(header) + ':' + digest.text();
    file.rewrite(text.data(), int64_t(digest_length), int64_t(8 + find_digest(header)));
  }
  file.commit();
}

Safetensors load_safetensors(const std::string& path) {
  Reader reader(path);
  Safetensors result{.tensors = reader.tensors(), .metadata = {}};
  result.metadata = std::move(reader.metadata);
  return result;
}

Metadata load_safetensors_metadata(const std::string& path) {
  return std::move(Reader(path).metadata);
}

}  // namespace stretto::nn
