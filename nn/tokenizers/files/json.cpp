#include "nn/tokenizers/files/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/one_line.h"
#include "nn/tokenizers/files/definition.h"
#include "nn/tokenizers/files/json_builder.h"

namespace stretto::nn::tokenizers {

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

const Json& Json::operator[](std::string_view key) const {
  static const Json none;
  for (const auto& [name, value] : members)
    if (name == key) return value;
  return none;
}

Json json_string(std::string text) {
  Json value;
  value.kind = Json::Kind::string;
  value.text = std::move(text);
  return value;
}

Json parse_json(std::string_view text, const std::string& name) {
  JsonBuilder builder(name);
  nlohmann::json::sax_parse(text, &builder);
  return std::move(builder.root);
}

std::string quoted_json(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return value.truth ? "true" : "false";
    case Json::Kind::integer:
      return std::to_string(value.integer);
    case Json::Kind::number:
      return nlohmann::json(value.number).dump();
    case Json::Kind::string:
      return quoted_json(value.text);
    case Json::Kind::list: {
      std::string text = "[";
      for (const Json& item : value.items) text += (text.size() > 1 ? "," : "") + json_text(item);
      return text + "]";
    }
    default: {
      std::string text = "{";
      for (const auto& [key, item] : value.members)
        text += (text.size() > 1 ? "," : "") + quoted_json(key) + ":" + json_text(item);
      return text + "}";
    }
  }
}

Fields::Fields(const Json& object, std::string name, std::string where)
    : object_(object), name_(std::move(name)), where_(std::move(where)) {
  if (!object.is_object()) bad("must be an object");
}

const Json& Fields::get(std::string_view key) {
  read_.push_back(key);
  return object_[key];
}

bool Fields::boolean(std::string_view key, bool fallback) {
  const Json& value = get(key);
  if (value.is_null()) return fallback;
  if (value.kind != Json::Kind::boolean) bad(std::string(key) + " must be true or false");
  return value.truth;
}

int64_t Fields::integer(std::string_view key, int64_t fallback, int64_t low, int64_t high) {
  const Json& value = get(key);
  if (value.is_null()) return fallback;
  if (value.kind != Json::Kind::integer || value.integer < low || value.integer > high)
    bad(std::string(key) + " must be an integer of " + std::to_string(low) + " to " +
        std::to_string(high));
  return value.integer;
}

std::string Fields::string(std::string_view key) {
  const Json& value = get(key);
  if (!value.is_string()) bad(std::string(key) + " must be a string");
  return value.text;
}

std::string Fields::string(std::string_view key, const std::string& fallback) {
  return get(key).is_null() ? fallback : string(key);
}

void Fields::ignore(std::initializer_list<std::string_view> keys) {
  read_.insert(read_.end(), keys.begin(), keys.end());
}

void Fields::finish() const {
  for (const auto& [key, value] : object_.members)
    if (std::find(read_.begin(), read_.end(), key) == read_.end())
      bad("the field " + in_quotes(key) + " is not supported");
}

void Fields::bad(const std::string& message) const { fail(op, name_, ": ", where_, ": ", message); }

}  // namespace stretto::nn::tokenizers
