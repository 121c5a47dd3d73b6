#include "tests/conformance/config.h"

#include <cmath>

#include "core/error.h"

namespace stretto::conformance {
namespace {

using nlohmann::json;

constexpr const char* op = "conformance";

[[noreturn]] void wrong(const std::string& key, const json& value, const std::string& must) {
  fail(op, "config: ", key, " is of JSON type ", value.type_name(), "; must be ", must);
}

int64_t to_integer(const std::string& key, const json& value) {
  constexpr double exact = 9007199254740992.0;  // 2^53: larger doubles skip integers
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX))
    fail(op, "config: ", key, " is too large");
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) wrong(key, value, "an integer");
  const double x = value.get<double>();
  check(std::fabs(x) <= exact && x == std::floor(x), op, "config: ", key, " is ", x,
        "; must be an integer");
  return int64_t(x);
}

double to_number(const std::string& key, const json& value) {
  if (!value.is_number()) wrong(key, value, "a number");
  return value.get<double>();
}

}  // namespace

Config::Config(const std::string& text) : values_(json::parse(text, nullptr, false)) {
  check(values_.is_object(), op, "its config is no JSON object");
}

const json* Config::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() || found->is_null() ? nullptr : &*found;
}

const json& Config::at(const std::string& key) const {
  const json* value = find(key);
  check(value != nullptr, op, "its config has no ", key);
  return *value;
}

int64_t Config::integer(const std::string& key) const { return to_integer(key, at(key)); }

int64_t Config::integer(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double Config::number(const std::string& key) const { return to_number(key, at(key)); }

double Config::number(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool Config::flag(const std::string& key, bool fallback) const {
  const json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) wrong(key, *value, "true or false");
  return value->get<bool>();
}

std::vector<int64_t> Config::integers(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_array()) wrong(key, value, "a list of integers");
  std::vector<int64_t> all;
  for (const json& x : value) all.push_back(to_integer(key, x));
  return all;
}

std::string Config::choice(const std::string& key,
                           std::initializer_list<const char*> accepted) const {
  const json* value = find(key);
  if (!value) return *accepted.begin();
  if (!value->is_string()) wrong(key, *value, "a text");
  const std::string text = value->get<std::string>();
  std::string known;
  for (const char* name : accepted) {
    if (text == name) return text;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  fail(op, "config: ", key, " is \"", text, "\"; accepted: ", known);
}

}  // namespace stretto::conformance
