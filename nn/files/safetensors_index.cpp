#include "nn/files/safetensors_index.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "core/input_file.h"
#include "nn/files/other_format.h"
#include "nn/files/safetensors_header.h"

namespace stretto::nn::files {
namespace {

// Depth 1 is the index, depth 2 the weight map; other content is skipped.
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  IndexReader(const char* op, const std::string& path) : op_(op), path_(path) {}

  std::map<std::string, std::string> shards;
  bool found = false;

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(op_, path_, ": ", parts...);
  }

  bool start_object(std::size_t) override {
    if (depth_ == 2 && in_map_) value("an object");
    ++depth_;
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return end_array();
  }
  bool start_array(std::size_t) override {
    value("a list");
    ++depth_;
    return true;
  }
  bool end_array() override {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }

  bool key(std::string& text) override {
    if (!keys_.back().insert(text).second)
      bad(in_map_ ? "the name " : "", in_quotes(text), " occurs twice");
    if (depth_ == 1) {
      in_map_ = text == "weight_map";
      found |= in_map_;
    } else if (in_map_) {
      if (shards.size() == max_names) bad("more than ", max_names, " tensors");
      name_ = text;
    }
    return true;
  }

  bool string(std::string& text) override {
    if (!in_map_ || depth_ != 2) return value("a string");
    const auto invalid = [](char c) { return c == '/' || c == '\\' || (c >= 0 && c < ' '); };
    if (text.empty() || text == "." || text == ".." ||
        std::any_of(text.begin(), text.end(), invalid))
      bad(in_quotes(name_), " maps to ", in_quotes(text),
          "; a shard must be a file name without a directory");
    shards[name_] = text;
    return true;
  }

  bool number_unsigned(uint64_t) override { return value("a number"); }
  bool number_integer(int64_t) override { return value("a number"); }
  bool number_float(double, const std::string&) override { return value("a number"); }
  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool binary(nlohmann::json::binary_t&) override { return value("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) override {
    bad("the index is not JSON (byte ", at, " of it)");
  }

 private:
  // Values outside of the weight map are ignored.
  bool value(const char* what) const {
    if (!in_map_) return true;
    if (depth_ == 1) bad("\"weight_map\" holds ", what, ", not an object");
    bad(in_quotes(name_), " maps to ", what, ", not to a file");
  }

  const char* op_;
  const std::string& path_;
  int depth_ = 0;
  bool in_map_ = false;
  std::string name_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the enclosing objects
};

}  // namespace

std::map<std::string, std::string> read_index(const char* op, const std::string& path) {
  const InputFile file(op, path);
  IndexReader reader(op, path);
  if (file.size() > int64_t(max_header))
    reader.bad("an index of ", file.size(), " bytes; at most ", max_header, " allowed");
  std::string text(size_t(file.size()), '\0');
  file.read(text.data(), file.size(), 0);
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    reader.bad("the index is not JSON (byte ", zero + 1, " of it)");
  const size_t byte_order_mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  if (const size_t first = text.find_first_not_of(" \t\r\n", byte_order_mark);
      first == std::string::npos || text[first] != '{')
    reader.bad("the index does not begin with {", other_format(file));
  nlohmann::json::sax_parse(text, &reader);
  if (!reader.found) reader.bad("the index has no \"weight_map\"", other_format(file));
  return std::move(reader.shards);
}

std::map<std::string, std::set<std::string>> names_by_shard(
    const char* op, const std::string& path, const std::map<std::string, std::string>& index) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::map<std::string, std::set<std::string>> names;
  for (const auto& [name, shard] : index) names[(folder / shard).string()].insert(name);
  check(names.size() <= 1000, op, path, ": ", names.size(), " shards; at most 1000 allowed");
  std::error_code ignored;
  for (const auto& [shard, own] : names)
    check(std::filesystem::exists(shard, ignored), op, path, ": the shard ",
          in_quotes(std::filesystem::path(shard).filename().string()), " is missing");
  return names;
}

}  // namespace stretto::nn::files
