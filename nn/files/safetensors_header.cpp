#include "nn/files/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "nn/files/value_format.h"

namespace stretto::nn::files {
namespace {

// Builds the entries while nlohmann-json parses the header; only a SAX parser can detect duplicate
// keys. Depth 1 is the header, 2 a tensor or the metadata, 3 a list of numbers.
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
      if (!in_metadata_) entries.push_back({.name = name_, .dtype = "", .shape = {}});
      if (entries.size() > max_names) bad("more than ", max_names, " tensors");
    }
    if (depth_ > 2) unexpected("an object");
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      if (!names_.insert(text).second) bad("the name ", in_quotes(text), " occurs twice");
      name_ = text;
    } else {
      const bool known = text == "dtype" || text == "shape" || text == "data_offsets";
      if (!in_metadata_ && !known) bad(where(), "unknown field ", in_quotes(text));
      if (!fields_.insert(text).second) bad(where(), in_quotes(text), " occurs twice");
      if (fields_.size() > max_names) bad(where(), "more than ", max_names, " strings");
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
    bad(where(), field_, " holds ", in_quotes(text), ", which is not an integer in range");
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      metadata[field_] = text;
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") unexpected("a string");
    entries.back().dtype = text;
    return true;
  }

  bool null() override {
    if (depth_ != 1 || name_ != metadata_key) unexpected("null");
    return true;  // no metadata, as in other implementations
  }
  bool boolean(bool) override { unexpected("a boolean"); }
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

}  // namespace

Header parse_header(const std::string& path, const std::string& text) {
  // JSON has no zero bytes, but the parser would treat one as the end.
  if (text.empty() || text[0] != '{')
    fail("safetensors", path, ": the header does not begin with {");
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    fail("safetensors", path, ": the header is not JSON (byte ", zero + 1, " of it)");
  HeaderReader reader(path);
  nlohmann::json::sax_parse(text, &reader);
  return {std::move(reader.entries), std::move(reader.metadata)};
}

void check_layout(const std::string& path, std::vector<Entry>& entries, int64_t bytes) {
  const auto bad = [&](const auto&... parts) { fail("safetensors", path, ": ", parts...); };
  for (const Entry& e : entries) {
    const ValueFormat* known = find_format(e.dtype);
    int64_t count = known ? known->bytes : 1;
    bool overflow = false;
    for (int64_t n : e.shape)
      if (n > 0) overflow |= __builtin_mul_overflow(count, n, &count);
    if (overflow || count > (int64_t(1) << 58))
      bad(in_quotes(e.name), ": shape ", e.shape, " has too many elements");
    if (e.begin > e.end)
      bad(in_quotes(e.name), ": its data begin at ", e.begin, ", after their end at ", e.end);
    if (e.end > bytes)
      bad(in_quotes(e.name), ": its data end at byte ", e.end, ", those of the file at ", bytes);
    const int64_t needed = e.shape.numel() == 0 ? 0 : count;
    if (known && e.end - e.begin != needed)
      bad(in_quotes(e.name), ": ", e.dtype, " ", e.shape, " has ", needed,
          " bytes, data_offsets have ", e.end - e.begin);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin < at) bad(in_quotes(e.name), ": its data overlap those of another tensor");
    if (e.begin > at)
      bad("a gap of ", e.begin - at, " bytes before the data of ", in_quotes(e.name));
    at = e.end;
  }
  if (at != bytes) bad(bytes - at, " bytes after the data of the last tensor");
}

}  // namespace stretto::nn::files
