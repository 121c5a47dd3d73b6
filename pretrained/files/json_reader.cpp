#include "pretrained/files/json_reader.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/input_file.h"
#include "core/one_line.h"

namespace stretto::nn::files {

namespace {

bool is_number(const Json& value) {
  return value.kind == Json::Kind::integer || value.kind == Json::Kind::number;
}

// The integer of a number without a fraction: 64 or 64.0.
std::optional<int64_t> integer_of(const Json& value) {
  if (!is_number(value) || value.number != std::floor(value.number) ||
      std::abs(value.number) > 1e15)
    return {};
  return int64_t(value.number);
}

}  // namespace

JsonReader::JsonReader(const char* op, std::string source, const Json& object)
    : op_(op), source_(std::move(source)), object_(&object) {
  if (!object.is_object()) refuse("must be an object of JSON");
}

JsonReader JsonReader::parse(const char* op, const std::string& source, const std::string& json) {
  const auto root = std::make_shared<const Json>(parse_json(op, json, source));
  JsonReader reader(op, source, *root);
  reader.root_ = root;
  return reader;
}

JsonReader JsonReader::of_file(const char* op, const std::string& path) {
  return parse(op, path, read_text(op, path));
}

std::vector<JsonReader> JsonReader::list_of_file(const char* op, const std::string& path) {
  const auto root = std::make_shared<const Json>(parse_json(op, read_text(op, path), path));
  check(root->is_list(), op, one_line(path), ": must be a list of JSON");
  std::vector<JsonReader> all;
  for (const Json& item : root->items) {
    all.emplace_back(op, path, item);
    all.back().root_ = root;
  }
  return all;
}

const Json* JsonReader::find(const std::string& name) {
  used_.insert(name);
  const Json& value = (*object_)[name];
  return value.is_null() ? nullptr : &value;
}

void JsonReader::refuse(const std::string& text) const { fail(op_, one_line(source_), ": ", text); }

void JsonReader::refuse_value(const std::string& name, const std::string& expected) const {
  refuse(str(in_quotes(name), " is ", one_line(json_text((*object_)[name]), 80), "; expected ",
             expected));
}

template <class T, class Read>
T JsonReader::read(const std::string& name, const std::optional<T>& fallback, const Read& read) {
  if (const Json* value = find(name)) return read(*value);
  if (!fallback) refuse(str("the field ", in_quotes(name), " is missing"));
  return *fallback;
}

bool JsonReader::has(const std::string& name) const { return !(*object_)[name].is_null(); }
bool JsonReader::is_present(const std::string& name) const {
  return std::any_of(object_->members.begin(), object_->members.end(),
                     [&](const JsonMember& m) { return m.first == name; });
}
bool JsonReader::is_text(const std::string& name) const { return (*object_)[name].is_string(); }

const Json& JsonReader::value(const std::string& name) {
  used_.insert(name);
  return (*object_)[name];
}

int64_t JsonReader::integer(const std::string& name, std::optional<int64_t> fallback, int64_t low,
                            int64_t high) {
  return read(name, fallback, [&](const Json& value) {
    const std::optional<int64_t> x = integer_of(value);
    if (!x || *x < low || *x > high)
      refuse_value(
          name, high == largest_integer ? "an integer" : str("an integer of ", low, " … ", high));
    return *x;
  });
}

int64_t JsonReader::size(const std::string& name, std::optional<int64_t> fallback,
                         int64_t largest) {
  const int64_t value = integer(name, fallback);
  if (value < 1 || value > largest)
    refuse(str(in_quotes(name), " is ", value, "; expected 1 … ", largest));
  return value;
}

double JsonReader::number(const std::string& name, std::optional<double> fallback) {
  return read(name, fallback, [&](const Json& value) {
    if (!is_number(value)) refuse_value(name, "a number");
    return value.number;
  });
}

bool JsonReader::flag(const std::string& name, std::optional<bool> fallback) {
  return read(name, fallback, [&](const Json& value) {
    if (value.kind != Json::Kind::boolean) refuse_value(name, "true or false");
    return value.truth;
  });
}

std::string JsonReader::text(const std::string& name, const std::optional<std::string>& fallback) {
  return read(name, fallback, [&](const Json& value) {
    if (!value.is_string()) refuse_value(name, "a text");
    return value.text;
  });
}

std::vector<int64_t> JsonReader::integers(const std::string& name) {
  const Json* value = find(name);
  if (!value) return {};
  std::vector<int64_t> all;
  for (const Json& item : value->is_list() ? value->items : std::vector<Json>{*value}) {
    const std::optional<int64_t> x = integer_of(item);
    if (!x) refuse_value(name, "integers");
    all.push_back(*x);
  }
  return all;
}

const std::vector<Json>& JsonReader::list(const std::string& name) {
  const Json& all = value(name);
  if (!all.is_null() && !all.is_list()) refuse_value(name, "a list");
  return all.items;
}

std::vector<double> JsonReader::numbers(const std::string& name) {
  std::vector<double> all;
  for (const Json& item : list(name)) {
    if (!is_number(item)) refuse_value(name, "a list of numbers");
    all.push_back(item.number);
  }
  return all;
}

std::vector<bool> JsonReader::flags(const std::string& name) {
  std::vector<bool> all;
  for (const Json& item : list(name)) {
    if (item.kind != Json::Kind::boolean) refuse_value(name, "a list of true and false");
    all.push_back(item.truth);
  }
  return all;
}

std::vector<std::string> JsonReader::texts(const std::string& name) {
  std::vector<std::string> all;
  for (const Json& item : list(name)) {
    if (!item.is_string()) refuse_value(name, "a list of texts");
    all.push_back(item.text);
  }
  return all;
}

std::optional<JsonReader> JsonReader::object(const std::string& name) {
  const Json* value = find(name);
  if (!value) return {};
  JsonReader reader(op_, str(source_, ": ", in_quotes(name)), *value);
  reader.root_ = root_;
  return reader;
}

std::vector<JsonReader> JsonReader::objects(const std::string& name) {
  std::vector<JsonReader> all;
  for (const Json& item : list(name)) {
    all.emplace_back(op_, str(source_, ": ", in_quotes(name)), item);
    all.back().root_ = root_;
  }
  return all;
}

void JsonReader::ignore(std::initializer_list<const char*> names) {
  used_.insert(names.begin(), names.end());
}

void JsonReader::require(const std::string& name, bool value) {
  if (flag(name, value) != value)
    refuse(str(in_quotes(name), " is ", value ? "false" : "true", "; supported is ",
               value ? "true" : "false"));
}

void JsonReader::require(const std::string& name, const char* value) {
  if (const std::string given = text(name, value); given != value)
    refuse(str(in_quotes(name), " is ", in_quotes(given), "; supported is \"", value, '"'));
}

void JsonReader::finish() const {
  constexpr size_t shown = 5;
  std::vector<std::string> unused;
  for (const auto& [name, value] : object_->members)
    if (!value.is_null() && !used_.contains(name))
      unused.push_back(str(in_quotes(name), " = ", one_line(json_text(value), 40)));
  if (unused.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(shown, unused.size()); ++i)
    list += (i > 0 ? ", " : "") + unused[i];
  if (unused.size() > shown) list += str(" and ", unused.size() - shown, " more");
  refuse("these fields are not supported: " + list);
}

}  // namespace stretto::nn::files
