#include "nn/files/safetensors_header.h"

#include <algorithm>

#include "nn/files/json.h"
#include "nn/files/value_format.h"

namespace stretto::nn::files {
namespace {

// Reads the tensors and the metadata of a header.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, const Json& root) : path_(path) {
    for (const auto& [name, value] : root.members) {
      if (name == metadata_key && value.is_null()) continue;  // as in other implementations
      if (!value.is_object())
        bad(in_quotes(name), ": found ", kind_of(value), " where an object must be");
      if (name == metadata_key) {
        read_metadata(value);
      } else {
        if (header.entries.size() == max_names) bad("more than ", max_names, " tensors");
        header.entries.push_back(entry(name, value));
      }
    }
  }

  Header header;

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail("safetensors", path_, ": ", parts...);
  }

  void read_metadata(const Json& object) {
    if (object.members.size() > max_names) bad("metadata: more than ", max_names, " strings");
    for (const auto& [key, value] : object.members) {
      if (!value.is_string()) bad("metadata: ", in_quotes(key), " holds ", kind_of(value));
      header.metadata[key] = value.text;
    }
  }

  Entry entry(const std::string& name, const Json& fields) const {
    Entry e{.name = name, .dtype = "", .shape = {}};
    bool has_dtype = false, has_shape = false, has_data = false;
    for (const auto& [field, value] : fields.members) {
      if (field == "dtype") {
        if (!value.is_string()) bad(in_quotes(name), ": \"dtype\" holds ", kind_of(value));
        e.dtype = value.text;
        has_dtype = true;
      } else if (field == "shape") {
        e.shape = Shape(numbers(name, field, value));
        has_shape = true;
      } else if (field == "data_offsets") {
        const std::vector<int64_t> range = numbers(name, field, value);
        if (range.size() != 2)
          bad(in_quotes(name), ": data_offsets has ", range.size(), " numbers");
        e.begin = range[0];
        e.end = range[1];
        has_data = true;
      } else {
        bad(in_quotes(name), ": unknown field ", in_quotes(field));
      }
    }
    const char* missing = !has_dtype ? "dtype" : !has_shape ? "shape" : "data_offsets";
    if (!has_dtype || !has_shape || !has_data)
      bad(in_quotes(name), ": \"", missing, "\" is missing");
    return e;
  }

  std::vector<int64_t> numbers(const std::string& name, const std::string& field,
                               const Json& list) const {
    const std::string where = in_quotes(name) + ": ";
    if (!list.is_list()) bad(where, in_quotes(field), " holds ", kind_of(list));
    if (list.items.size() > size_t(Shape::max_dims))
      bad(where, field, " has more than ", Shape::max_dims, " numbers");
    std::vector<int64_t> result;
    for (const Json& item : list.items) {
      if (item.kind != Json::Kind::integer && item.kind != Json::Kind::number)
        bad(where, in_quotes(field), " holds ", kind_of(item));
      if (item.kind == Json::Kind::number)
        bad(where, field, " holds ", item.number, ", which is not an integer in range");
      if (item.integer < 0) bad(where, field, " holds the negative number ", item.integer);
      result.push_back(item.integer);
    }
    return result;
  }

  const std::string& path_;
};

}  // namespace

Header parse_header(const std::string& path, const std::string& text) {
  if (text.empty() || text[0] != '{')
    fail("safetensors", path, ": the header does not begin with {");
  return HeaderReader(path, parse_json("safetensors", text, path + ": the header")).header;
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
