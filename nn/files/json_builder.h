// Builds Json values from nlohmann-json's events. Only for .cpp files.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "../../core/error.h"
#include "../../core/one_line.h"
#include "json.h"

namespace stretto::nn::files {

/// The handler of nlohmann::json::sax_parse, which needs no base class. Errors begin with the name.
class JsonBuilder {
 public:
  static constexpr size_t max_depth = 64, max_values = size_t(1) << 22;

  JsonBuilder(const char* op, std::string name) : op_(op), name_(std::move(name)) {}

  Json root;

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(op_, one_line(name_), ": ", parts...);
  }

  bool null() { return put({}); }
  bool boolean(bool value) {
    Json json;
    json.kind = Json::Kind::boolean;
    json.truth = value;
    return put(std::move(json));
  }
  bool number_integer(int64_t value) {
    Json json;
    json.kind = Json::Kind::integer;
    json.integer = value;
    json.number = double(value);
    return put(std::move(json));
  }
  bool number_unsigned(uint64_t value) {
    if (value > uint64_t(std::numeric_limits<int64_t>::max()))
      return number_float(double(value), "");
    return number_integer(int64_t(value));
  }
  bool number_float(double value, const std::string&) {
    Json json;
    json.kind = Json::Kind::number;
    json.number = value;
    return put(std::move(json));
  }
  bool string(std::string& text) {
    Json json;
    json.kind = Json::Kind::string;
    json.text = std::move(text);
    return put(std::move(json));
  }
  template <class Binary>
  bool binary(Binary&) {
    bad("binary data");
  }
  bool start_object(size_t) { return open(Json::Kind::object); }
  bool start_array(size_t) { return open(Json::Kind::list); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& text) {
    if (!names_.back().insert(text).second) bad("the field ", in_quotes(text), " occurs twice");
    key_ = std::move(text);
    return true;
  }
  template <class Exception>
  bool parse_error(size_t at, const std::string&, const Exception&) {
    bad("is not JSON (byte ", at, ")");
  }

  /// Returns the number of open objects and lists.
  size_t depth() const { return open_.size(); }

 private:
  Json* append(Json value) {
    if (++n_values_ > max_values) bad("more than ", max_values, " values");
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.kind == Json::Kind::list) return &parent.items.emplace_back(std::move(value));
    parent.members.push_back({std::move(key_), std::move(value)});
    return &parent.members.back().second;
  }
  bool put(Json value) {
    append(std::move(value));
    return true;
  }
  bool open(Json::Kind kind) {
    if (open_.size() == max_depth) bad("more than ", max_depth, " levels of objects and lists");
    Json json;
    json.kind = kind;
    open_.push_back(append(std::move(json)));
    names_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }

  const char* op_;
  std::string name_, key_;
  size_t n_values_ = 0;
  // The open objects and lists, each in its parent, whose members do not move while it is open; and
  // the names of their fields.
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace stretto::nn::files
